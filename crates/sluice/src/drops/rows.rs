//! The rows of `sluice drops`: readings of `drops/show` joined with sampled packets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::drop_feed::DroppedOf;
use crate::status::{scaled, span};

/// Ports and reasons of which a packet is kept.
const SAMPLES_MAX: usize = 4096;
/// Ports of UDP that tunnels have, with their names.
const TUNNELS: [(u16, &str); 3] = [(4789, "VXLAN"), (6081, "Geneve"), (2152, "GTP-U")];
/// Number of GRE in IP headers.
const GRE: u8 = 47;

/// The last packet of each port and reason.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<(String, String), DroppedOf>);

impl Samples {
    pub(super) fn take(&mut self, packet: DroppedOf) {
        let place = (packet.port.clone(), packet.dropped.reason.clone());
        if self.0.len() < SAMPLES_MAX || self.0.contains_key(&place) {
            self.0.insert(place, packet);
        }
    }
}

/// All rows.
pub(super) struct Rows(Vec<Row>);

struct Row {
    /// As read.
    read: Value,
    rate: f64,
    sample: Option<DroppedOf>,
    /// About the size of the frame.
    size: Option<String>,
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn packets(value: &Value) -> u64 {
    value["packets"].as_u64().unwrap_or_default()
}

/// Elements of an array.
fn elements(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

impl Rows {
    /// Rows of two readings and the time between them.
    pub(super) fn new(
        before: &Value,
        now: &Value,
        elapsed: Duration,
        samples: &Samples,
        mtu: &dyn Fn(&str) -> Option<u32>,
    ) -> Rows {
        let place = |row: &Value| ["datapath", "port", "reason"].map(|name| text(row, name).to_string());
        let old: BTreeMap<_, u64> = elements(before).iter().map(|row| (place(row), packets(row))).collect();
        let row = |read: &Value| {
            let more = packets(read).saturating_sub(old.get(&place(read)).copied().unwrap_or_default());
            let sample = samples.0.get(&(text(read, "port").to_string(), text(read, "reason").to_string()));
            let too_big = text(read, "reason") == "tx_too_big";
            let size = sample.filter(|_| too_big).and_then(|s| about_size(s, mtu(text(read, "port"))?));
            let rate = more as f64 / elapsed.as_secs_f64().max(0.001);
            Row { read: read.clone(), rate, sample: sample.cloned(), size }
        };
        let mut rows: Vec<Row> = elements(now).iter().map(row).collect();
        rows.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(packets(&b.read).cmp(&packets(&a.read))));
        Rows(rows)
    }

    pub(super) fn json(&self, note: Option<&str>) -> String {
        let drops: Value = self.0.iter().map(Row::json).collect();
        let mut out = Map::from_iter([("drops".to_string(), drops)]);
        out.extend(note.map(|note| ("note".to_string(), note.into())));
        format!("{:#}\n", Value::from(out))
    }

    pub(super) fn text(&self, note: Option<&str>, trace: bool) -> String {
        if self.0.is_empty() {
            let note = note.map(|note| format!("{note}\n")).unwrap_or_default();
            return format!("No port drops packets.\n{note}");
        }
        let head = ["PORT", "REASON", "KERNEL", "PACKETS", "RATE/s", "LAST"].map(str::to_string);
        let cells: Vec<[String; 6]> = self.0.iter().map(Row::cells).collect();
        let width =
            |n: usize| cells.iter().chain([&head]).map(|c| c[n].chars().count()).max().unwrap_or_default();
        let widths = [0, 1, 2, 3, 4].map(width);
        let line = |cells: &[String; 6]| {
            let [a, b, c, d, e] = widths;
            let [port, reason, kernel, packets, rate, last] = cells;
            format!("{port:a$}  {reason:b$}  {kernel:c$}  {packets:>d$}  {rate:>e$}  {last}\n")
        };
        let mut out = line(&head);
        for (row, cells) in self.0.iter().zip(&cells) {
            out += &line(cells);
            row.details(&mut out, trace);
        }
        out.extend(note.map(|note| format!("{note}\n")));
        out
    }
}

impl Row {
    /// Milliseconds since the last packet, if known.
    fn last_ms(&self) -> Option<u64> {
        let causes = elements(&self.read["causes"]).iter().filter_map(|cause| cause["last_ms"].as_u64());
        causes.chain((self.rate > 0.0).then_some(0)).min()
    }

    fn cells(&self) -> [String; 6] {
        let kernel = self.read["kernel"].as_str().unwrap_or("-");
        [
            text(&self.read, "port").to_string(),
            text(&self.read, "reason").to_string(),
            kernel.to_string(),
            packets(&self.read).to_string(),
            scaled(self.rate),
            self.last_ms()
                .map_or("-".to_string(), |ms| if ms < 1000 { "now".to_string() } else { span(ms) + " ago" }),
        ]
    }

    fn details(&self, out: &mut String, trace: bool) {
        let causes = elements(&self.read["causes"]);
        let mut line = |indent: usize, text: &str| {
            // Writing to a string cannot fail.
            let _infallible = writeln!(out, "{:indent$}{text}", "");
        };
        if causes.is_empty() {
            line(2, self.size.as_deref().unwrap_or_else(|| text(&self.read, "help")));
        }
        for cause in causes {
            line(2, text(cause, "why"));
            for (word, rule) in [("dropped by", &cause["rule"]), ("hides", &cause["hides"])] {
                if rule.is_object() {
                    line(4, &format!("{word}: {}", rule_text(rule)));
                }
            }
            line(4, &format!("flow: {}", text(cause, "flow")));
            if trace {
                text(cause, "trace").lines().for_each(|text| line(6, text));
            }
        }
        if let Some(more) = self.read["more_flows"].as_u64().filter(|more| *more > 0) {
            line(2, &format!("{more} more flows"));
        }
        if let Some(sample) = &self.sample {
            line(4, &format!("sample: {}", sample.text()));
        }
    }

    fn json(&self) -> Value {
        let mut row = self.read.clone();
        row["rate"] = json!(self.rate);
        row["last_ms"] = json!(self.last_ms());
        row["size"] = json!(self.size);
        row["sample"] = json!(self.sample.as_ref().map(|sample| {
            let hex =
                sample.dropped.packet.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
            json!({"text": sample.text(), "bytes": sample.dropped.packet_bytes, "packet": hex})
        }));
        row
    }
}

fn rule_text(rule: &Value) -> String {
    let (bridge, matching, actions) = (text(rule, "bridge"), text(rule, "match"), text(rule, "actions"));
    format!("bridge {bridge}, table {}: {matching}, actions={actions}", rule["table"])
}

/// The size of a frame beside the MTU of its port, and what makes it so.
fn about_size(sample: &DroppedOf, mtu: u32) -> Option<String> {
    let bytes = sample.dropped.packet_bytes;
    let excess = bytes.checked_sub(mtu + 14).filter(|excess| *excess > 0)?;
    let mut out = format!("a frame of {bytes} bytes does not fit the MTU of {mtu}");
    let flow = sample.key().to_flow(flow::OfPort::NONE);
    let udp = TUNNELS.iter().find(|(port, _)| flow.nw_proto == 17 && flow.tp_dst == *port);
    let gre = (flow.nw_proto == GRE).then_some("GRE");
    if let Some(kind) = udp.map(|(_, name)| *name).or(gre) {
        let _infallible = write!(
            out,
            ": the headers of a {kind} tunnel make it too long; the MTU of senders behind the tunnel must be at least \
             {excess} bytes smaller"
        );
    }
    Some(out)
}
