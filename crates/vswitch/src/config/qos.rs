//! Quality of service: [`Qos`] of a port from its row of `QoS` and those of `Queue`, [`Policing`] of an interface.
//!
//! As in OVS a queue may have any settings; those that its discipline lacks are noted in the port's row.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use dpif::qos::{Discipline, Policing, QUEUES_MAX, Qos, Queue, Rates};
use ovsdb::client::RowView;

use super::reader::Reader;

/// Keys of the settings of a queue of a kernel's discipline, and of `trtcm-policer`.
const QUEUE_KEYS: [&str; 4] = ["burst", "max-rate", "min-rate", "priority"];
const MARKER_KEYS: [&str; 4] = ["cbs", "cir", "ebs", "eir"];

impl<'a> Reader<'a> {
    /// The quality of service of a port; a row without a type asks for none.
    pub(super) fn qos(&mut self, port: RowView<'a>) -> Option<Arc<Qos>> {
        let row = self.replica.row("QoS", port.opt_uuid("qos")?)?;
        let name = row.str("type");
        if name.is_empty() {
            return None;
        }
        let mut faults = Vec::new();
        let discipline = Discipline::parse(name, |key| number(row, key, 0..=u64::MAX, "QoS", &mut faults));
        let Some(discipline) = discipline else {
            let message = format!("QoS type {name:?} is unknown: the port has no quality of service");
            self.notice(port, "qos", message);
            return None;
        };
        note_unknown_keys(row, Discipline::keys(name), "QoS", name, &mut faults);
        let rows = row.int_uuid_map("queues");
        if !rows.is_empty() && !discipline.has_queues() {
            faults.push(format!("QoS {name} has no queues: its queues are ignored"));
        }
        let mut queues = BTreeMap::new();
        for (queue, uuid) in rows {
            let Some(row) = self.replica.row("Queue", uuid) else { continue };
            match u32::try_from(queue).ok().filter(|queue| *queue < QUEUES_MAX) {
                Some(queue) => {
                    queues.insert(queue, parse_queue(row, queue, &discipline, &mut faults));
                }
                None => faults.push(format!("queue {queue} is not from 0 to {}: ignored", QUEUES_MAX - 1)),
            }
        }
        if !faults.is_empty() {
            self.hint(port, "qos", faults.join("; "));
        }
        Some(Arc::new(Qos { discipline, queues }))
    }
}

/// The limits of what an interface receives.
pub(super) fn policing(row: RowView<'_>) -> Policing {
    let column = |name| u64::try_from(row.int(name)).unwrap_or(0);
    Policing {
        kbps: column("ingress_policing_rate"),
        burst_kbits: column("ingress_policing_burst"),
        kpps: column("ingress_policing_kpkts_rate"),
        burst_kpackets: column("ingress_policing_kpkts_burst"),
    }
}

fn parse_queue(row: RowView<'_>, queue: u32, qos: &Discipline, faults: &mut Vec<String>) -> Queue {
    let what = format!("queue {queue}");
    let is_marker = matches!(qos, Discipline::Trtcm(_));
    let known = if is_marker { &MARKER_KEYS } else { &QUEUE_KEYS };
    note_unknown_keys(row, known, &what, qos.name(), faults);
    let mut number = |key: &str, range| {
        if known.contains(&key) { number(row, key, range, &what, faults) } else { 0 }
    };
    let any = 1..=u64::MAX;
    Queue {
        rates: Rates::parse(|key| number(key, 0..=u64::MAX)),
        min_rate: number("min-rate", any.clone()),
        max_rate: number("max-rate", any.clone()),
        burst: number("burst", any),
        priority: u32::try_from(number("priority", 0..=u32::MAX.into())).unwrap_or(u32::MAX),
        dscp: row.opt_int("dscp").and_then(|n| u8::try_from(n).ok()).filter(|dscp| *dscp < 64),
    }
}

/// A setting; 0 for an absent one, and for one out of its range.
fn number(
    row: RowView<'_>,
    key: &str,
    range: RangeInclusive<u64>,
    what: &str,
    faults: &mut Vec<String>,
) -> u64 {
    let Some(text) = row.map_str("other_config", key) else { return 0 };
    let value = text.trim().parse().ok().filter(|n| range.contains(n));
    value.unwrap_or_else(|| {
        faults.push(match range.into_inner() {
            (0, u64::MAX) => format!("{what} other_config:{key}={text:?} is not a number: ignored"),
            (from, u64::MAX) => {
                format!("{what} other_config:{key}={text:?} is not a number from {from}: ignored")
            }
            (from, to) => {
                format!("{what} other_config:{key}={text:?} is not a number from {from} to {to}: ignored")
            }
        });
        0
    })
}

fn note_unknown_keys(row: RowView<'_>, known: &[&str], what: &str, qos: &str, faults: &mut Vec<String>) {
    let keys = row.string_map("other_config").into_keys();
    let unknown = keys.filter(|key| !known.contains(key));
    faults.extend(unknown.map(|key| format!("{what} other_config:{key} has no effect on {qos}")));
}
