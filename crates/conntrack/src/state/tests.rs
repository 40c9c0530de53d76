//! State words.

use super::{Helper, Stage, State};
use proptest::prelude::*;

proptest! {
    #[test]
    fn states_are_words(bits: [bool; 4], stage in 0..3usize, helper in 0..3usize, policy: u16, mark: u32) {
        let [snat, dnat, related, labelled] = bits;
        let state = State {
            stage: [Stage::First, Stage::Multiple, Stage::Both][stage],
            snat,
            dnat,
            related,
            labelled,
            helper: [None, Some(Helper::Ftp), Some(Helper::Tftp)][helper],
            policy,
            mark,
        };
        prop_assert_eq!(State::unpack(state.pack()), state);
    }
}
