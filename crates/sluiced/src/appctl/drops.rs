//! `drops/show`: which ports drop packets, and why.
//!
//! Counters come from the ports. Causes of drops by rules come from the installed flows: each flow that drops is translated
//! again with a trace, without effects, which shows the rule or the fault. This needs no listener and works on every
//! datapath. A reply has bounds: the most used flows of each port and reason are translated, [`EXPLAINED_MAX`] in all.

use super::datapath::Names;
use super::{Json, Optional, Reply, Rows, TypedReply, Word, command};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use crate::trace_text::Shown;
use dpif::text::{FlowFormat, format_key_mask};
use dpif::{DpAction, DropCause, DropReason, PortStats, XlateDrop};
use flow::{DpPort, Flow, PackedFlow};
use ofp_actions::text::format_actions;
use ofproto::ports::{BridgeNames, PortTable};
use ofproto::rule::Rule;
use ofproto::ukey::{Ukey, Walk};
use ofproto::view::{BridgeView, View};
use ofproto::xlate::{Request, Start, TraceEvent, TraceNode, Translation, rule_text, translate};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// The commands of this module.
pub(super) const ROWS: Rows = &[&command(
    "drops/show",
    Optional(Word("port | bridge")),
    "show which ports drop packets, and why",
    show,
)];

/// Flows of one port and reason that are translated.
const FLOWS_MAX: usize = 8;
/// Flows that are translated for a reply.
const EXPLAINED_MAX: usize = 64;
/// Bytes of a trace in a reply.
const TRACE_MAX: usize = 16 * 1024;

/// Packets that a port drops for a reason.
struct PortDrop {
    datapath: String,
    bridge: Option<String>,
    port: String,
    cause: Cause,
    /// On transmission.
    sending: bool,
    packets: u64,
    causes: Vec<Explained>,
    /// Flows beyond those explained.
    more_flows: usize,
}

/// A reason with its names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Switch(DropCause),
    /// Before the switch: `rx_ring_full` and others.
    Before(&'static str),
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Cause::Switch(cause) => cause.name(),
            Cause::Before(name) => name,
        }
    }

    fn kernel(self) -> Option<&'static str> {
        match self {
            Cause::Switch(cause) => cause.kernel(),
            Cause::Before(_) => None,
        }
    }

    fn help(self) -> &'static str {
        match self {
            Cause::Switch(cause) => cause.help(),
            Cause::Before(_) => "The device or its queue lost it before the switch.",
        }
    }
}

/// A cause of drops, with the flows that share it.
struct Explained {
    packets: u64,
    last_ms: Option<u64>,
    why: String,
    /// Bridge, table and text of the rule, and its actions.
    rule: Option<RuleText>,
    /// The rule that this one hides.
    hides: Option<RuleText>,
    key: String,
    trace: String,
}

#[derive(PartialEq, Eq)]
struct RuleText {
    bridge: String,
    table: u8,
    rule: String,
    actions: String,
}

impl RuleText {
    fn json(&self) -> Value {
        json!({"bridge": self.bridge, "table": self.table, "match": self.rule, "actions": self.actions})
    }

    fn line(&self) -> String {
        format!("bridge {}, table {}: {}, actions={}", self.bridge, self.table, self.rule, self.actions)
    }
}

fn show(plane: &mut ControlPlane, only: Option<&str>) -> Reply {
    let instances = plane.switch.instances();
    let now_ms = sys::clock::monotonic_ms();
    let mut left = EXPLAINED_MAX;
    let mut drops: Vec<PortDrop> = Vec::new();
    let mut known = only.is_none();
    for instance in instances.iter() {
        let mut of = OfInstance::new(instance, now_ms);
        known |= only.is_some_and(|name| of.knows(name));
        drops.extend(of.drops(only, &mut left));
    }
    match only.filter(|_| !known) {
        None => Reply::Value(Box::new(Drops(drops))),
        Some(name) => Reply::Error(format!("{name}: no such port or bridge")),
    }
}

/// Flows that drop, by input port and reason.
type Flows = BTreeMap<(DpPort, XlateDrop), DroppingFlows>;

/// Flows of one port and reason.
#[derive(Default)]
struct DroppingFlows {
    flows: usize,
    packets: u64,
    /// The most used ones, [`FLOWS_MAX`] at most, by use.
    most_used: Vec<Dropping>,
}

impl DroppingFlows {
    fn take(&mut self, ukey: &Ukey) {
        let (packets, used_ms) = (ukey.pushed.packets, ukey.pushed.used_ms);
        self.flows += 1;
        self.packets += packets;
        let at = self.most_used.partition_point(|f| (f.packets, f.used_ms) >= (packets, used_ms));
        if at < FLOWS_MAX {
            self.most_used.truncate(FLOWS_MAX - 1);
            self.most_used.insert(at, Dropping { flow: ukey.flow.clone(), packets, used_ms });
        }
    }
}

struct Dropping {
    flow: PackedFlow,
    packets: u64,
    used_ms: u64,
}

struct OfInstance<'a> {
    instance: &'a Instance,
    view: Arc<View>,
    names: Names,
    now_ms: u64,
}

impl<'a> OfInstance<'a> {
    fn new(instance: &'a Instance, now_ms: u64) -> OfInstance<'a> {
        OfInstance { instance, view: instance.backer.view(), names: Names::of(instance), now_ms }
    }

    fn bridge(&self, name: &str) -> Option<&Arc<BridgeView>> {
        self.view.bridges.values().find(|b| &*b.name == name)
    }

    fn knows(&self, name: &str) -> bool {
        self.bridge(name).is_some()
            || self.instance.datapath.ports().iter().any(|p| p.name == name)
            || self.view.bridges.values().any(|b| b.ports.by_name(name).is_some())
    }

    /// All flows whose packets are dropped.
    fn dropping(&self) -> Flows {
        let mut found = Flows::new();
        let ukeys = &self.instance.backer.ukeys;
        let mut walk = (!ukeys.is_empty()).then(Walk::default);
        while let Some(from) = walk {
            walk = ukeys.each(from, |_, _, ukey| {
                let why = match ukey.actions[..] {
                    [] => XlateDrop::Ok,
                    [DpAction::Drop(drop)] => drop.0,
                    _ => return,
                };
                found.entry((ukey.flow.in_port(), why)).or_default().take(ukey);
            });
        }
        found
    }

    /// Bridge and name of a port of the datapath.
    fn place(&self, port: DpPort) -> (Option<String>, String) {
        let found = self.view.dp_ports.get(&port).and_then(|(bridge, of_port)| {
            let bridge = self.view.bridge(*bridge)?;
            Some((bridge.name.to_string(), bridge.ports.port(*of_port)?.name.clone()))
        });
        match found {
            Some((bridge, name)) => (Some(bridge), name),
            None => (
                None,
                dpif::text::PortNames::name(&self.names, port).unwrap_or_else(|| format!("port {port}")),
            ),
        }
    }

    fn drops(&mut self, only: Option<&str>, left: &mut usize) -> Vec<PortDrop> {
        let mut flows = self.dropping();
        let mut counted: BTreeMap<(DpPort, Cause), u64> = BTreeMap::new();
        for (port, stats) in self.instance.datapath.all_port_stats() {
            counted.extend(causes(&stats).into_iter().map(|(cause, n)| ((port, cause), n)));
        }
        for ((port, why), flows) in &flows {
            // A datapath that does not count by reason has the packets of its flows.
            let count = counted.entry((*port, Cause::Switch(DropCause::Xlate(*why)))).or_default();
            *count = (*count).max(flows.packets);
        }
        let mut drops = Vec::new();
        for ((port, cause), packets) in counted {
            let of_flows = match cause {
                Cause::Switch(DropCause::Xlate(why)) => flows.remove(&(port, why)).unwrap_or_default(),
                _ => DroppingFlows::default(),
            };
            let (bridge, name) = self.place(port);
            // Tunnels share a port of the datapath.
            let bridge = bridge.or_else(|| {
                let key = of_flows.most_used.first()?.flow.key();
                let (bridge, _) = self.instance.backer.receiver(&self.view, &key)?;
                Some(bridge.name.to_string())
            });
            if only.is_some_and(|only| only != name && Some(only) != bridge.as_deref()) {
                continue;
            }
            let (causes, more_flows) = self.explain(of_flows, left);
            let sending = cause.name().starts_with("tx_");
            let datapath = self.instance.name().to_string();
            drops.push(PortDrop {
                datapath,
                bridge,
                port: name,
                cause,
                sending,
                packets,
                causes,
                more_flows,
            });
        }
        drops
    }

    /// Explains the most used flows, and joins those of one cause. Returns the number of flows left out, too.
    fn explain(&self, flows: DroppingFlows, left: &mut usize) -> (Vec<Explained>, usize) {
        let most = flows.most_used.len().min(*left);
        *left -= most;
        let more = flows.flows - most;
        let mut causes: Vec<Explained> = Vec::new();
        for found in flows.most_used.iter().take(most).filter_map(|f| self.explain_flow(f)) {
            match causes.iter_mut().find(|c| (&c.why, &c.rule) == (&found.why, &found.rule)) {
                Some(known) => {
                    known.packets += found.packets;
                    known.last_ms = known.last_ms.into_iter().chain(found.last_ms).min();
                }
                None => causes.push(found),
            }
        }
        (causes, more)
    }

    fn explain_flow(&self, dropping: &Dropping) -> Option<Explained> {
        let backer = &self.instance.backer;
        let (key, mask) = (dropping.flow.key(), dropping.flow.mask());
        let text = format_key_mask(&key, &mask, &FlowFormat::brief(&self.names));
        let mut explained = Explained {
            packets: dropping.packets,
            last_ms: (dropping.used_ms != 0).then(|| self.now_ms.saturating_sub(dropping.used_ms)),
            why: String::new(),
            rule: None,
            hides: None,
            key: text,
            trace: String::new(),
        };
        let Some((bridge, of_port)) = backer.receiver(&self.view, &key) else {
            explained.why = "the port is in no bridge".to_string();
            return Some(explained);
        };
        let Ok(flow) = bridge.flow_of(&key, of_port) else {
            explained.why =
                "the options of the tunnel do not agree with the mappings of the bridge".to_string();
            return Some(explained);
        };
        let request =
            Request { view: &self.view, bridge: bridge.id, flow: &flow, start: Start::Tables, trace: true };
        let t = translate(&request, &mut backer.xlate_host(false, self.now_ms));
        backer.recirc_release(&t.recircs);
        if !matches!(t.actions[..], [] | [DpAction::Drop(_)]) {
            // Changed since: the revalidator replaces the flow.
            return None;
        }
        self.fill(&mut explained, &flow, &t);
        let names = BridgeNames { ports: &bridge.ports, tlv: bridge.tables.tlv(), show: true };
        let shown = Shown { names: &names, dp_names: &self.names, with_names: true, has_packet: false };
        explained.trace = shown.translation(&flow, &t);
        let end =
            (0..=TRACE_MAX.min(explained.trace.len())).rev().find(|n| explained.trace.is_char_boundary(*n));
        explained.trace.truncate(end.unwrap_or(0));
        Some(explained)
    }

    /// The rule, what it hides, and the fault.
    fn fill(&self, explained: &mut Explained, flow: &Flow, t: &Translation) {
        let mut last = Last::default();
        last.walk(&t.trace, &[]);
        let told = last.text.clone().map(|(_, text)| text);
        explained.why = told.unwrap_or_else(|| match (&last.rule, last.table) {
            (Some(rule), _) if rule.actions.is_empty() => "a rule drops it".to_string(),
            (Some(_), _) => "the actions of a rule send it nowhere".to_string(),
            (None, Some(table)) => format!("no rule of table {table} matches"),
            (None, None) => t.fault.clone().unwrap_or_else(|| "it reaches no table".to_string()),
        });
        let Some((name, ports)) = last.bridge else { return };
        let Some(bridge) = self.bridge(&name) else { return };
        let names = BridgeNames { ports: &ports, tlv: bridge.tables.tlv(), show: true };
        let text = |rule: &Rule| RuleText {
            bridge: name.to_string(),
            table: rule.table.0,
            rule: rule_text(Some(rule), &names),
            actions: match rule.actions.is_empty() {
                true => "drop".to_string(),
                false => format_actions(&rule.actions, &names),
            },
        };
        if let Some(rule) = &last.rule {
            explained.rule = Some(text(rule));
            if rule.actions.is_empty() {
                // The flow when the table was looked up is that at the end, or at the start.
                let hidden = [&t.final_flow, flow].into_iter().find_map(|f| bridge.tables.hidden_by(rule, f));
                explained.hides = hidden.filter(|rule| !rule.actions.is_empty()).map(|rule| text(rule));
            }
        }
    }
}

/// A bridge of a trace: its name and ports.
type TracedBridge = (Arc<str>, Arc<PortTable>);

/// The last things that a trace shows.
#[derive(Default)]
struct Last {
    bridge: Option<TracedBridge>,
    table: Option<u8>,
    rule: Option<Arc<Rule>>,
    /// With its weight: faults before what was not done, before results.
    text: Option<(u8, String)>,
}

impl Last {
    /// `around`: the bridges around the nodes.
    fn walk(&mut self, nodes: &[TraceNode], around: &[TracedBridge]) {
        for node in nodes {
            let mut inside = around.to_vec();
            match &node.event {
                TraceEvent::Bridge(name, _, ports) => inside.push((name.clone(), ports.clone())),
                TraceEvent::Table { table, rule, .. } => {
                    (self.table, self.rule, self.text) = (Some(table.0), rule.clone(), None);
                    self.bridge = around.last().cloned();
                }
                TraceEvent::FragmentsDropped(table) => {
                    (self.table, self.rule) = (Some(table.0), None);
                    self.tell(2, "the bridge drops IP fragments");
                }
                TraceEvent::Error(text) => self.tell(2, text),
                TraceEvent::Warning(text) | TraceEvent::Refused(text) => self.tell(1, text),
                TraceEvent::Detail(text) => self.tell(0, text),
                _ => {}
            }
            self.walk(&node.children, &inside);
        }
    }
}

impl Last {
    /// The last text of the greatest weight explains.
    fn tell(&mut self, weight: u8, text: &str) {
        if self.text.as_ref().is_none_or(|(known, _)| *known <= weight) {
            self.text = Some((weight, text.to_string()));
        }
    }
}

/// All nonzero counts of a port; each drop once.
fn causes(stats: &PortStats) -> Vec<(Cause, u64)> {
    let inside = DropCause::all().map(|cause| {
        let n = match cause {
            DropCause::Xlate(why) => stats.xlate_drops[why as usize],
            DropCause::Datapath(DropReason::Explicit) => 0,
            DropCause::Datapath(reason) => stats.drops[reason as usize] + stats.tx_drops[reason as usize],
        };
        (Cause::Switch(cause), n)
    });
    let before = stats.drops_before().map(|(name, n)| (Cause::Before(name), n));
    before.into_iter().chain(inside).filter(|(_, n)| *n > 0).collect()
}

/// The reply.
struct Drops(Vec<PortDrop>);

impl TypedReply for Drops {
    fn text(&self) -> String {
        let mut out = String::new();
        for d in &self.0 {
            let kernel = d.cause.kernel().map(|name| format!(" ({name})")).unwrap_or_default();
            let _ = writeln!(
                out,
                "{}: {}{kernel}: {} packets: {}",
                d.port,
                d.cause.name(),
                d.packets,
                d.cause.help()
            );
            for c in &d.causes {
                let _ = writeln!(out, "  {}", c.why);
                for (word, rule) in [("rule", &c.rule), ("hides", &c.hides)] {
                    if let Some(rule) = rule {
                        let _ = writeln!(out, "    {word}: {}", rule.line());
                    }
                }
                let _ = writeln!(out, "    flow: {}, packets:{}", c.key, c.packets);
            }
            if d.more_flows > 0 {
                let _ = writeln!(out, "  {} more flows", d.more_flows);
            }
        }
        out
    }

    fn json(&self) -> Json<'_> {
        Json::Elements(Box::new(self.0.iter().map(PortDrop::json)))
    }
}

impl PortDrop {
    fn json(&self) -> Value {
        json!({
            "datapath": self.datapath,
            "bridge": self.bridge,
            "port": self.port,
            "reason": self.cause.name(),
            "kernel": self.cause.kernel(),
            "help": self.cause.help(),
            "direction": if self.sending { "tx" } else { "rx" },
            "packets": self.packets,
            "causes": self.causes.iter().map(Explained::json).collect::<Value>(),
            "more_flows": self.more_flows,
        })
    }
}

impl Explained {
    fn json(&self) -> Value {
        let rule = |rule: &Option<RuleText>| rule.as_ref().map(RuleText::json);
        json!({
            "why": self.why,
            "packets": self.packets,
            "last_ms": self.last_ms,
            "rule": rule(&self.rule),
            "hides": rule(&self.hides),
            "flow": self.key,
            "trace": self.trace,
        })
    }
}

/// Head of docs/drops.md.
#[cfg(test)]
const PAGE_HEAD: &str = "\
# Drops

<!-- Made from the rows of crates/dpif/src/drops.rs by a test. SLUICE_WRITE_PAGES=1 writes this file. -->

Each dropped packet has one reason. `sluice drops [PORT|BRIDGE]` shows ports and reasons with the rule or fault behind each, a sampled
packet, and with `--trace` its way through the tables; `--json` prints values for programs. `sluice tcpdump --dropped [PORT] [EXPR]`
shows the packets, with the reason before each line or in the comment of each packet of a file (`-w`, pcapng). PORT `any` stands for all.
[Troubleshoot](guide/troubleshoot.md#which-packets-are-dropped-and-why) has examples.

- The name is that of `sluice status`, `sluice drops` and the column `statistics` (`sluice_NAME_drops`).
- The counter is that of `coverage/show`: of Open vSwitch where it has one.
- The kernel's name is the reason with which the kernel frees such a packet on its datapath (`skb:kfree_skb`), if it has one.

Counters and causes are always there, on both datapaths: `drops/show` translates again the flows that drop, eight of each port and
reason, 64 in all. Packets are sampled while somebody listens on the [event socket](probes.md#the-event-socket), in the userspace
datapath: a number of each reason, second and thread, so a flood of one reason hides no other. Of packets that could not be sent,
one of each burst is sampled. The kernel's datapath counts drops by flow and by device, and samples none.
";

/// docs/drops.md.
#[cfg(test)]
pub(super) fn page() -> String {
    let mut out = PAGE_HEAD.to_string();
    let causes: [(&str, fn(&DropCause) -> bool); 2] = [
        ("By translation", |cause| matches!(cause, DropCause::Xlate(_))),
        ("In the datapath", |cause| matches!(cause, DropCause::Datapath(_))),
    ];
    for (title, is_in) in causes {
        let _ =
            write!(out, "\n## {title}\n\n| name | counter | kernel | when |\n| --- | --- | --- | --- |\n");
        for cause in DropCause::all().filter(is_in) {
            let code = |name: Option<&str>| name.map_or(String::new(), |name| format!("`{name}`"));
            let (name, help) = (cause.name(), cause.help());
            let (counter, kernel) = (code(cause.counter()), code(cause.kernel()));
            let _ = writeln!(out, "| `{name}` | {counter} | {kernel} | {help} |");
        }
    }
    out
}
