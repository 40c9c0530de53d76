//! Commands that only parse datapath flows and actions: `dpctl/parse-actions`, `dpctl/normalize-actions`.

use super::{Parsed, Reply, Rows, Several, command};
use crate::control_plane::ControlPlane;
use dpif::DpAction;
use dpif::text::{FlowFormat, NumbersOnly, format_actions, format_key_mask, parse_actions, parse_key_mask};
use flow::{FlowKey, KeyMask, VlanTag};
use packet::headers as h;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "dpctl/normalize-actions",
        (Parsed("flow", key), Parsed("actions", actions)),
        "print actions in canonical order, by the tags and labels of the packet",
        normalize,
    ),
    &command(
        "dpctl/parse-actions",
        Several("actions", 1, 64),
        "parse datapath actions and print them",
        parse,
    ),
];

fn actions(text: &str) -> Result<Vec<DpAction>, String> {
    parse_actions(text, &NumbersOnly).map_err(|e| format!("odp_actions_from_string ({e})"))
}

/// `ACTIONS...`, a line each.
fn parse(_: &mut ControlPlane, lists: Vec<&str>) -> Reply {
    let line = |text: &&str| Ok(format_actions(&actions(text)?, &NumbersOnly) + "\n");
    lists.iter().map(line).collect::<Result<String, String>>().into()
}

/// `FLOW ACTIONS`: the actions by the tags and labels that packets have at each. Outputs in a row are in order of
/// their ports.
fn normalize(_: &mut ControlPlane, ((key, mask), actions): ((FlowKey, KeyMask), Vec<DpAction>)) -> Reply {
    let format = FlowFormat { verbose: false, packet_types: false, names: &NumbersOnly, extra_info: None };
    let shown = format_key_mask(&key, &mask, &format);
    format!("input flow: {shown}\n{}", by_headers(Headers::of(&key), &actions)).into()
}

fn key(text: &str) -> Result<(FlowKey, KeyMask), String> {
    parse_key_mask(text, &NumbersOnly).map_err(|e| format!("odp_flow_key_from_string ({e})"))
}

/// Bit of the last MPLS label (RFC 3032 §2.1).
const BOTTOM_OF_STACK: u32 = 0x100;

/// Tags and labels of a packet, the outermost first.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Headers {
    /// EtherType and contents.
    tags: Vec<(u16, u16)>,
    labels: Vec<u32>,
}

impl Headers {
    fn of(key: &FlowKey) -> Headers {
        let outer = VlanTag { tpid: key.base.vlan_tpid, tci: key.base.vlan_tci };
        let tags = [outer, key.arp.vlan1].into_iter().filter(|tag| tag.is_present());
        let mut labels = Vec::new();
        if h::is_mpls(key.base.dl_type) {
            for lse in key.arp.mpls_lse {
                labels.push(lse);
                if lse & BOTTOM_OF_STACK != 0 {
                    break;
                }
            }
        }
        Headers { tags: tags.map(|tag| (tag.tpid, tag.tci)).collect(), labels }
    }

    /// Applies an action that changes them; `false` for another one.
    fn change(&mut self, action: &DpAction) -> bool {
        if let DpAction::PushVlan(push) = action {
            self.tags.insert(0, (push.tpid, push.tci));
        } else if let DpAction::PopVlan(_) = action {
            self.tags = self.tags.get(1..).unwrap_or_default().to_vec();
        } else if let DpAction::PushMpls(push) = action {
            self.labels.insert(0, push.lse);
        } else if let DpAction::PopMpls(_) = action {
            self.labels = self.labels.get(1..).unwrap_or_default().to_vec();
        } else {
            return false;
        }
        true
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for (tpid, tci) in &self.tags {
            let kind = if *tpid == h::ETH_TYPE_VLAN { String::new() } else { format!("tpid={tpid:#x},") };
            let _ = write!(out, "vlan({kind}vid={},pcp={}): ", tci & 0xfff, tci >> 13);
        }
        out += if self.tags.is_empty() { "no vlan: " } else { "" };
        for lse in &self.labels {
            let _ = write!(out, "mpls(label={},tc={},ttl={}): ", lse >> 12, lse >> 9 & 7, lse & 0xff);
        }
        out + if self.labels.is_empty() { "no mpls: " } else { "" }
    }
}

/// The actions for each state of the headers, a line each.
fn by_headers(mut headers: Headers, actions: &[DpAction]) -> String {
    let mut lists: BTreeMap<Headers, Vec<DpAction>> = BTreeMap::new();
    for action in actions {
        if !headers.change(action) {
            lists.entry(headers.clone()).or_default().push(action.clone());
        }
    }
    if lists.is_empty() {
        lists.insert(headers, Vec::new());
    }
    let mut out = String::new();
    for (headers, mut actions) in lists {
        let port = |action: &DpAction| match action {
            DpAction::Output(to) => Some(to.0),
            _other => None,
        };
        for outputs in actions.chunk_by_mut(|a, b| port(a).is_some() && port(b).is_some()) {
            outputs.sort_by_key(port);
        }
        let _ = writeln!(out, "{}{}", headers.text(), format_actions(&actions, &NumbersOnly));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As OVS 3.1, which prints several lists without newlines, and the EtherType of a tag in the wrong byte order.
    #[test]
    fn actions_are_listed_by_headers() {
        let plain = "in_port(1),eth(),eth_type(0x0800),ipv4()";
        let tagged = "in_port(1),eth(),eth_type(0x8100),vlan(vid=9,pcp=0),encap(eth_type(0x0800),ipv4())";
        for (flow, text, expected) in [
            (plain, "2,1", "no vlan: no mpls: 1,2\n"),
            (plain, "1,1,3,2", "no vlan: no mpls: 1,1,2,3\n"),
            (plain, "drop", "no vlan: no mpls: drop\n"),
            (plain, "1,push_vlan(vid=5,pcp=1),3,2", "no vlan: no mpls: 1\nvlan(vid=5,pcp=1): no mpls: 2,3\n"),
            (
                plain,
                "push_vlan(vid=5,pcp=1),1,pop_vlan,2,1",
                "no vlan: no mpls: 1,2\nvlan(vid=5,pcp=1): no mpls: 1\n",
            ),
            (
                plain,
                "set(eth(src=00:00:00:00:00:09)),1,set(eth(src=00:00:00:00:00:07)),2",
                "no vlan: no mpls: set(eth(src=00:00:00:00:00:09)),1,set(eth(src=00:00:00:00:00:07)),2\n",
            ),
            (
                plain,
                "push_vlan(vid=5,pcp=1),push_vlan(tpid=0x88a8,vid=6,pcp=1),1",
                "vlan(tpid=0x88a8,vid=6,pcp=1): vlan(vid=5,pcp=1): no mpls: 1\n",
            ),
            (tagged, "1,pop_vlan,2", "no vlan: no mpls: 2\nvlan(vid=9,pcp=0): no mpls: 1\n"),
        ] {
            let (key, _) = parse_key_mask(flow, &NumbersOnly).unwrap();
            assert_eq!(by_headers(Headers::of(&key), &actions(text).unwrap()), expected, "{text}");
        }
        assert!(actions("foo").unwrap_err().starts_with("odp_actions_from_string"));
    }
}
