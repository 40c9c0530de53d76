//! [`State`]: the state word of a record: protocol state, flags, timeout policy, mark.

use crate::alg::Helper;

/// States of protocols without sequence numbers: first packets of one direction, more of them, both directions. Only the
/// last one is established: before a reply, all packets are new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    First,
    Multiple,
    Both,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    /// The source is translated.
    pub(crate) snat: bool,
    /// The destination is translated.
    pub(crate) dnat: bool,
    /// Expected by a helper of another connection.
    pub(crate) related: bool,
    /// Labels are not zero.
    pub(crate) labelled: bool,
    /// Its control packets announce connections.
    pub(crate) helper: Option<Helper>,
    /// Timeout policy.
    pub(crate) policy: u16,
    pub(crate) mark: u32,
}

impl State {
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        let helper = match self.helper {
            None => 0,
            Some(Helper::Ftp) => 1,
            Some(Helper::Tftp) => 2,
        };
        let stage = match self.stage {
            Stage::First => 0,
            Stage::Multiple => 1,
            Stage::Both => 2,
        };
        stage
            | u64::from(self.snat) << 2
            | u64::from(self.dnat) << 3
            | u64::from(self.related) << 4
            | u64::from(self.labelled) << 5
            | helper << 6
            | u64::from(self.policy) << 16
            | u64::from(self.mark) << 32
    }

    #[inline(always)]
    pub(crate) fn unpack(word: u64) -> State {
        let bit = |n: u32| word >> n & 1 != 0;
        State {
            stage: match word & 3 {
                0 => Stage::First,
                1 => Stage::Multiple,
                _ => Stage::Both,
            },
            snat: bit(2),
            dnat: bit(3),
            related: bit(4),
            labelled: bit(5),
            helper: match word >> 6 & 3 {
                1 => Some(Helper::Ftp),
                2 => Some(Helper::Tftp),
                _ => None,
            },
            policy: (word >> 16) as u16,
            mark: (word >> 32) as u32,
        }
    }
}

#[cfg(test)]
mod tests;
