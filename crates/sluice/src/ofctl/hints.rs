//! Hints for mistyped words within rules, groups, meters and packets: the parsers name the word, this module the known
//! word that is nearest.

use anyhow::{Error, anyhow};
use flow::fields::ALL_FIELDS;
use flow::text::PROTOCOL_NAMES;
use ofp_actions::text::action_names;

use super::Different;
use crate::hint::hint;
use crate::remote::{TimedOut, run_dir};

/// Keywords of rules, groups, buckets, meters, bands and packets, besides fields.
const KEYWORDS: [&str; 44] = [
    "actions",
    "bands",
    "bucket",
    "bucket_id",
    "buckets",
    "burst",
    "burst_size",
    "check_overlap",
    "command_bucket_id",
    "cookie",
    "fields",
    "group_id",
    "hard_timeout",
    "idle_timeout",
    "importance",
    "in_port",
    "kbps",
    "meter",
    "no_byte_counts",
    "no_packet_counts",
    "nw_dst",
    "nw_src",
    "out_group",
    "out_port",
    "packet",
    "pktps",
    "prec_level",
    "priority",
    "rate",
    "reset_counts",
    "selection_method",
    "selection_method_param",
    "send_flow_rem",
    "stats",
    "table",
    "tp_dst",
    "tp_src",
    "type",
    "watch_group",
    "watch_port",
    "weight",
    "dl_src",
    "dl_dst",
    "dl_type",
];
/// Types of groups and bands.
const TYPES: [&str; 7] = ["all", "select", "indirect", "ff", "fast_failover", "drop", "dscp_remark"];

/// Fields of a tuple of `ct-flush`.
const TUPLE: [&str; 10] = [
    "ct_nw_src",
    "ct_nw_dst",
    "ct_ipv6_src",
    "ct_ipv6_dst",
    "ct_nw_proto",
    "ct_tp_src",
    "ct_tp_dst",
    "icmp_id",
    "icmp_type",
    "icmp_code",
];

/// Kind of a mistyped word.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Keyword,
    Tuple,
    Action,
    Type,
    Bridge,
}

/// Beginnings of errors, before the word.
const BEFORE: [(&str, Kind); 7] = [
    ("invalid conntrack tuple field: ", Kind::Tuple),
    ("unknown keyword ", Kind::Keyword),
    ("unknown field ", Kind::Keyword),
    ("unknown action ", Kind::Action),
    ("invalid group type ", Kind::Type),
    ("unknown value ", Kind::Type),
    ("field ", Kind::Keyword),
];
/// Ends of errors, behind the word.
const BEHIND: [(&str, Kind); 2] =
    [(": unknown keyword", Kind::Keyword), (" is not a bridge or a socket", Kind::Bridge)];

/// The mistyped word of an error.
pub(super) fn mistyped(text: &str) -> Option<(&str, Kind)> {
    let before = BEFORE.iter().find_map(|(begin, kind)| {
        let rest = text.split(begin).nth(1)?;
        let word = rest.split([' ', ':', ',']).next()?;
        // `field NAME missing value`, not other errors about a field.
        (*begin != "field " || rest[word.len()..].starts_with(" missing value")).then_some((word, *kind))
    });
    before.or_else(|| {
        BEHIND.iter().find_map(|(end, kind)| {
            let head = text.split_once(end)?.0;
            let word = head.rsplit(' ').next()?;
            Some((word.split('=').next().unwrap_or(word), *kind))
        })
    })
}

/// Names of the bridges with a socket.
fn bridges() -> Vec<String> {
    let entries = std::fs::read_dir(run_dir()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_suffix(".mgmt")?.to_string())).collect()
}

/// ` (did you mean 'NAME'?)` for the mistyped word of an error, or nothing.
fn for_text(text: &str) -> String {
    let Some((word, kind)) = mistyped(text) else { return String::new() };
    match kind {
        Kind::Keyword => {
            let fields = ALL_FIELDS.iter().flat_map(|field| [Some(field.def().name), field.def().alias]);
            hint(word, KEYWORDS.into_iter().chain(PROTOCOL_NAMES).chain(fields.flatten()))
        }
        Kind::Tuple => hint(word, TUPLE),
        Kind::Action => hint(word, action_names()),
        Kind::Type => hint(word, TYPES),
        Kind::Bridge => hint(word, bridges().iter().map(String::as_str)),
    }
}

/// The error with a hint, if it has a mistyped word and no hint yet.
pub(super) fn with_hint(error: Error) -> Error {
    if error.chain().any(|cause| cause.is::<TimedOut>() || cause.is::<Different>()) {
        return error;
    }
    let text = format!("{error:#}");
    match for_text(&text) {
        hint if hint.is_empty() || text.contains("did you mean") => error,
        hint => anyhow!("{text}{hint}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_words_get_hints() {
        for (text, expected) in [
            ("field tpc missing value", "tcp"),
            ("unknown keyword tp_dts", "tp_dst"),
            ("unknown action outptu", "output"),
            ("f:3: unknown keyword tabel", "table"),
            ("unknown keyword grp_id", "group_id"),
            ("invalid group type slect", "select"),
            ("field type unknown value dorp", "drop"),
            ("unknown keyword metr", "meter"),
            ("in_prt=1: unknown keyword", "in_port"),
            ("Failed to parse CT match: invalid conntrack tuple field: ct_nw_scr", "ct_nw_src"),
        ] {
            assert_eq!(for_text(text), format!(" (did you mean '{expected}'?)"), "{text}");
        }
        for text in
            ["", "unknown keyword ", "unknown action xyzzyxyzzy", "field tcp_dst is bad", "no such port"]
        {
            assert_eq!(for_text(text), "", "{text}");
        }
        assert!(with_hint(Error::new(TimedOut)).is::<TimedOut>());
    }
}
