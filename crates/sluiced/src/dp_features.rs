//! The features of a datapath with their names in OVS: for its start in the log, the column `Datapath.capabilities`, and
//! the commands `dpif/show-dp-features` and `dpif/set-dp-features`.

use dpif::Capabilities;
use std::collections::BTreeMap;
use std::fmt;

/// The value of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Flag(bool),
    Number(u8),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(on) => write!(f, "{on}"),
            Value::Number(n) => write!(f, "{n}"),
        }
    }
}

/// A feature that a datapath lacks, in the words of the stock switch.
const BEYOND: &str = "Can not enable features not supported by the datapth";

/// Place of a feature.
pub(crate) enum Slot<'c> {
    Flag(&'c mut bool),
    Number(&'c mut u8),
    /// Always the same: translations do not use it. As in OVS switching it off is no error.
    Fixed(Value),
}

impl Slot<'_> {
    pub(crate) fn value(&self) -> Value {
        match self {
            Slot::Flag(on) => Value::Flag(**on),
            Slot::Number(n) => Value::Number(**n),
            Slot::Fixed(value) => *value,
        }
    }

    /// Sets it to the value of a text; an error in the words of the stock switch. A number is at most `boot`; a flag is
    /// on where it was at `boot`, or by `force`.
    pub(crate) fn set(self, text: &str, boot: Value, force: bool) -> Result<(), &'static str> {
        let flag = || match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("Boolean value expected"),
        };
        match self {
            Slot::Flag(on) => {
                let wanted = flag()?;
                if wanted && !force && boot == Value::Flag(false) {
                    return Err(BEYOND);
                }
                *on = wanted;
            }
            Slot::Number(n) => {
                let wanted: i32 = text.parse().map_err(|_| "Integer number expected")?;
                let wanted = u32::try_from(wanted).map_err(|_| "Negative number not expected")?;
                let Value::Number(most) = boot else { return Ok(()) };
                *n = u8::try_from(wanted)
                    .ok()
                    .filter(|n| *n <= most)
                    .ok_or("Can not set value beyond the datapath capability")?;
            }
            Slot::Fixed(value) => {
                if flag()? && value == Value::Flag(false) {
                    return Err(BEYOND);
                }
            }
        }
        Ok(())
    }
}

/// Sets each feature of a datapath that has all of them to the value of a text, as `dpif/set-dp-features` does.
pub(crate) fn set_each(text: &str) {
    let mut can = Capabilities::ENOUGH;
    for (_, _, place) in FEATURES {
        let boot = place(&mut can).value();
        let _ = place(&mut can).set(text, boot, false);
    }
}

/// A feature: its keyword, title and place.
pub(crate) type Row = (&'static str, &'static str, fn(&mut Capabilities) -> Slot<'_>);

/// In the order of `dpif/show-dp-features`.
pub(crate) const FEATURES: &[Row] = &[
    ("masked_set_action", "Masked set action", |c| Slot::Flag(&mut c.masked_set)),
    ("tnl_push_pop", "Tunnel push pop", |c| Slot::Flag(&mut c.tnl_push_pop)),
    ("ufid", "Ufid", |c| Slot::Flag(&mut c.ufid)),
    ("trunc", "Truncate action", |c| Slot::Flag(&mut c.truncate)),
    ("clone", "Clone action", |c| Slot::Flag(&mut c.clone)),
    ("sample_nesting", "Sample nesting", |c| Slot::Number(&mut c.sample_nesting)),
    ("ct_eventmask", "Conntrack eventmask", |c| Slot::Flag(&mut c.ct.event_mask)),
    ("ct_clear", "Conntrack clear", |c| Slot::Flag(&mut c.ct.clear)),
    ("max_hash_alg", "Max dp_hash algorithm", |c| Slot::Number(&mut c.max_hash_algorithm)),
    ("check_pkt_len", "Check pkt length action", |c| Slot::Flag(&mut c.check_pkt_len)),
    ("ct_timeout", "Conntrack timeout policy", |c| Slot::Flag(&mut c.ct.timeout)),
    ("explicit_drop_action", "Explicit Drop action", |c| Slot::Fixed(Value::Flag(c.explicit_drop))),
    ("lb_output_action", "Optimized Balance TCP mode", |c| Slot::Fixed(Value::Flag(c.lb_output))),
    ("ct_zero_snat", "Conntrack all-zero IP SNAT", |c| Slot::Flag(&mut c.ct.zero_snat)),
    ("add_mpls", "MPLS Label add", |c| Slot::Flag(&mut c.add_mpls)),
    ("psample", "psample action", |c| Slot::Flag(&mut c.psample)),
    ("max_vlan_headers", "Max VLAN headers", |c| Slot::Number(&mut c.max_vlan_headers)),
    ("max_mpls_depth", "Max MPLS depth", |c| Slot::Number(&mut c.max_mpls_depth)),
    ("recirc", "Recirc", |c| Slot::Flag(&mut c.recirc)),
    ("ct_state", "CT state", |c| Slot::Flag(&mut c.ct.state)),
    ("ct_zone", "CT zone", |c| Slot::Flag(&mut c.ct.zone)),
    ("ct_mark", "CT mark", |c| Slot::Flag(&mut c.ct.mark)),
    ("ct_label", "CT label", |c| Slot::Flag(&mut c.ct.label)),
    ("ct_state_nat", "CT state NAT", |c| Slot::Flag(&mut c.ct.state_nat)),
    ("ct_orig_tuple", "CT orig tuple", |c| Slot::Flag(&mut c.ct.orig_tuple)),
    ("ct_orig_tuple6", "CT orig tuple for IPv6", |c| Slot::Flag(&mut c.ct.orig_tuple6)),
    ("nd_ext", "IPv6 ND Extension", |c| Slot::Flag(&mut c.nd_ext)),
];

/// Logs the features of a datapath at its start, in the words and order of OVS.
pub(crate) fn log_support(datapath: &str, can: &Capabilities) {
    support_lines(can).into_iter().for_each(|line| log::info!(target: "ofproto_dpif", "{datapath}: {line}"));
}

fn support_lines(can: &Capabilities) -> Vec<String> {
    let of = |on: bool, what: &str| {
        format!("Datapath {} {what}", if on { "supports" } else { "does not support" })
    };
    let ct = &can.ct;
    vec![
        of(can.recirc, "recirculation"),
        format!("VLAN header stack length probed as {}", can.max_vlan_headers),
        format!("MPLS label stack length probed as {}", can.max_mpls_depth),
        of(can.truncate, "truncate action"),
        of(true, "unique flow ids"),
        of(can.clone, "clone action"),
        format!("Max sample nesting level probed as {}", can.sample_nesting),
        of(ct.event_mask, "eventmask in conntrack action"),
        of(ct.clear, "ct_clear action"),
        format!("Max dp_hash algorithm probed to be {}", can.max_hash_algorithm),
        of(can.check_pkt_len, "check_pkt_len action"),
        of(ct.timeout, "timeout policy in conntrack action"),
        of(can.explicit_drop, "explicit drop action"),
        of(ct.zero_snat, "ct_zero_snat"),
        of(can.add_mpls, "add_mpls action"),
        of(can.psample, "psample action"),
        of(ct.state, "ct_state"),
        of(ct.zone, "ct_zone"),
        of(ct.mark, "ct_mark"),
        of(ct.label, "ct_label"),
        of(ct.state_nat, "ct_state_nat"),
        of(ct.orig_tuple, "ct_orig_tuple"),
        of(ct.orig_tuple6, "ct_orig_tuple6"),
        of(can.nd_ext, "IPv6 ND Extensions"),
    ]
}

/// The column `Datapath.capabilities`: the features that translations use, as in OVS by their keywords.
/// `tracks`: the datapath tracks connections.
pub(crate) fn capabilities(mut can: Capabilities, tracks: bool) -> BTreeMap<String, String> {
    let text = |(keyword, _, place): &Row| {
        let value = match place(&mut can).value() {
            // The stock switch writes only whether samples nest.
            Value::Number(depth) if *keyword == "sample_nesting" => Value::Flag(depth > 0),
            value => value,
        };
        (keyword.to_string(), value.to_string())
    };
    let mut map: BTreeMap<_, _> = FEATURES.iter().map(text).collect();
    map.insert("ct_flush".to_string(), tracks.to_string());
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str, value: &str, force: bool) -> Result<Value, &'static str> {
        let (_, _, place) = FEATURES.iter().find(|(known, ..)| *known == key).unwrap();
        let mut can = Capabilities { psample: false, ..Capabilities::ENOUGH };
        let boot = place(&mut can).value();
        place(&mut can).set(value, boot, force)?;
        Ok(place(&mut can).value())
    }

    /// As OVS 3.5 answers.
    #[test]
    fn values_are_at_most_those_of_the_datapath() {
        for (key, value, expected) in [
            ("recirc", "false", Ok(Value::Flag(false))),
            ("recirc", "TRUE", Ok(Value::Flag(true))),
            ("recirc", "1", Err("Boolean value expected")),
            ("max_hash_alg", "0", Ok(Value::Number(0))),
            ("max_hash_alg", "2", Err("Can not set value beyond the datapath capability")),
            ("max_hash_alg", "300", Err("Can not set value beyond the datapath capability")),
            ("max_hash_alg", "x", Err("Integer number expected")),
            ("max_hash_alg", "-1", Err("Negative number not expected")),
            ("ct_state", "true", Ok(Value::Flag(true))),
            ("ct_state", "false", Ok(Value::Flag(false))),
            ("ufid", "true", Ok(Value::Flag(true))),
            ("ufid", "false", Ok(Value::Flag(false))),
            ("masked_set_action", "false", Ok(Value::Flag(false))),
            ("lb_output_action", "true", Ok(Value::Flag(true))),
            ("explicit_drop_action", "false", Ok(Value::Flag(Capabilities::ENOUGH.explicit_drop))),
            ("check_pkt_len", "false", Ok(Value::Flag(false))),
            ("add_mpls", "false", Ok(Value::Flag(false))),
            ("max_mpls_depth", "0", Ok(Value::Number(0))),
            ("psample", "true", Err("Can not enable features not supported by the datapth")),
        ] {
            assert_eq!(set(key, value, false), expected, "{key} {value}");
        }
        assert_eq!(set("psample", "true", true), Ok(Value::Flag(true)));
        let beyond = Err("Can not set value beyond the datapath capability");
        assert_eq!(set("max_hash_alg", "2", true), beyond, "also by force");
    }
}
