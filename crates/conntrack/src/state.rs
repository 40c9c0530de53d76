//! [`State`]: the state word of a record: protocol state, flags, timeout policy, mark.

/// States of protocols without sequence numbers: first packets of one direction, more of them, both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    First,
    Multiple,
    Both,
}

/// A helper for related connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Helper {
    /// None.
    #[default]
    None,
    /// FTP.
    Ftp,
    /// TFTP.
    Tftp,
}

impl Helper {
    /// The helper of that name; `None` if there is none.
    pub fn by_name(name: &str) -> Option<Helper> {
        match name {
            "ftp" => Some(Helper::Ftp),
            "tftp" => Some(Helper::Tftp),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Helper::None => None,
            Helper::Ftp => Some("ftp"),
            Helper::Tftp => Some("tftp"),
        }
    }
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
    pub(crate) helper: Helper,
    /// Sequence numbers change by the record's skew, in this direction.
    pub(crate) skew_reply: bool,
    /// Timeout policy.
    pub(crate) policy: u16,
    pub(crate) mark: u32,
}

impl State {
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        let helper = match self.helper {
            Helper::None => 0,
            Helper::Ftp => 1,
            Helper::Tftp => 2,
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
            | u64::from(self.skew_reply) << 8
            | u64::from(self.policy) << 16
            | u64::from(self.mark) << 32
    }

    #[inline]
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
                1 => Helper::Ftp,
                2 => Helper::Tftp,
                _ => Helper::None,
            },
            skew_reply: bit(8),
            policy: (word >> 16) as u16,
            mark: (word >> 32) as u32,
        }
    }
}

#[cfg(test)]
mod tests;
