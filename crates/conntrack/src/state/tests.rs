//! State words.

use super::{Helper, Stage, State};
use proptest::prelude::*;

proptest! {
    #[test]
    fn states_are_words(bits: [bool; 5], stage in 0..3usize, helper in 0..3usize, policy: u16, mark: u32) {
        let [snat, dnat, related, labelled, skew_reply] = bits;
        let state = State {
            stage: [Stage::First, Stage::Multiple, Stage::Both][stage],
            snat,
            dnat,
            related,
            labelled,
            helper: [Helper::None, Helper::Ftp, Helper::Tftp][helper],
            skew_reply,
            policy,
            mark,
        };
        prop_assert_eq!(State::unpack(state.pack()), state);
    }
}

#[test]
fn helpers_have_names() {
    for (name, helper) in
        [("ftp", Some(Helper::Ftp)), ("tftp", Some(Helper::Tftp)), ("sip", None), ("", None)]
    {
        assert_eq!(Helper::by_name(name), helper);
        assert_eq!(helper.and_then(Helper::name), helper.map(|_| name));
    }
}
