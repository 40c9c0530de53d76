//! Compared parts of a trace: the parsed flow, the final flow, megaflow and datapath actions of each pass.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Beginnings of the compared lines.
const HEADS: [&str; 5] = ["Flow: ", "Final flow: ", "Megaflow: ", "Datapath actions: ", "Translation failed"];

/// The compared lines of a trace, with recirculation ids replaced by their order.
pub(crate) fn of_story(story: &str) -> Vec<String> {
    let lines = story.lines().filter(|l| HEADS.iter().any(|h| l.starts_with(h)));
    let lines: Vec<String> = lines.map(str::to_string).collect();
    let mut ids = Vec::new();
    if lines.is_empty() {
        return vec![story.trim_end().to_string()];
    }
    lines.iter().map(|l| renumbered(l, &mut ids)).collect()
}

/// Replaces the numbers behind `recirc(0x` and `recirc_id=0x` by their order of appearance; 0 stays.
fn renumbered(line: &str, ids: &mut Vec<String>) -> String {
    let mut out = String::new();
    let mut rest = line;
    loop {
        // The longest of those at one place: an id follows its prefix.
        let found = ["recirc(0x", "recirc_id=0x", "recirc_id="]
            .iter()
            .filter_map(|h| Some((rest.find(h)?, h.len())))
            .min_by_key(|(at, len)| (*at, Reverse(*len)));
        let Some((at, len)) = found else { break };
        let (head, tail) = rest.split_at(at + len);
        out += head;
        let end = tail.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(tail.len());
        let id = &tail[..end];
        let order = ids.iter().position(|i| i == id).unwrap_or_else(|| {
            ids.push(id.to_string());
            ids.len() - 1
        });
        out += &format!("#{order}");
        rest = &tail[end..];
    }
    out + rest
}

/// The packets sent by datapath actions, each with its tags and rewritten fields, unordered: `None` for unknown
/// actions. `flow` is the flow of the actions.
pub(crate) fn sent(actions: &str, flow: &str) -> Option<Vec<String>> {
    let original: HashMap<&str, &str> = parts(flow).filter_map(|p| p.split_once('=')).collect();
    let tag = |suffix: &str| {
        let vid = original.get(format!("dl_vlan{suffix}").as_str())?;
        Some(format!("vid={vid},pcp={}", original.get(format!("dl_vlan_pcp{suffix}").as_str())?))
    };
    let mut tags: Vec<String> = [tag("1"), tag("")].into_iter().flatten().collect();
    let mut sets: BTreeMap<String, String> = BTreeMap::new();
    let mut sent = Vec::new();
    for action in parts(actions) {
        if action == "pop_vlan" {
            tags.pop()?;
        } else if let Some(tag) = inner(action, "push_vlan") {
            tags.push(tag.trim_start_matches("tpid=0x88a8,").to_string());
        } else if let Some(set) = inner(action, "set") {
            let (header, fields) = set.split_once('(')?;
            for field in parts(fields.strip_suffix(')')?) {
                let (name, value) = field.split_once('=').unwrap_or(("", field));
                let known = flow_field(header, name).and_then(|f| original.get(f));
                if known.is_some_and(|known| {
                    *known == value || number(known).is_some_and(|n| Some(n) == number(value))
                }) {
                    sets.remove(&format!("{header}.{name}"));
                } else {
                    sets.insert(format!("{header}.{name}"), value.to_string());
                }
            }
        } else {
            sent.push(format!("{action} {tags:?} {sets:?}"));
        }
    }
    sent.sort();
    Some(sent)
}

/// A number, restricted to its mask.
fn number(text: &str) -> Option<u64> {
    let text = text.split('/').next()?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The flow field of a header field.
fn flow_field(header: &str, name: &str) -> Option<&'static str> {
    Some(match (header, name) {
        ("eth", "src") => "dl_src",
        ("eth", "dst") => "dl_dst",
        ("ipv4", "src") => "nw_src",
        ("ipv4", "dst") => "nw_dst",
        ("ipv4", "tos") | ("ipv6", "tclass") => "nw_tos",
        ("ipv4", "ttl") | ("ipv6", "hlimit") => "nw_ttl",
        ("ipv6", "src") => "ipv6_src",
        ("ipv6", "dst") => "ipv6_dst",
        ("tcp" | "udp" | "sctp", "src") => "tp_src",
        ("tcp" | "udp" | "sctp", "dst") => "tp_dst",
        _ => return None,
    })
}

/// The text in the parentheses after `name`.
fn inner<'a>(action: &'a str, name: &str) -> Option<&'a str> {
    action.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')
}

/// The parts separated by commas outside of parentheses.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}
