//! [`Writer`]: writes the file of flows, on the thread of the file of state.

use super::{
    BLOCK_BYTES, FILE_MAX, FlowSource, FlowSources, Numbered, RECORD_BYTES, Reader, end_line, stand_alone,
    use_ports,
};
use crate::state::{Files, create_own, remove_flows};
use dpif::text::{NumbersOnly, format_actions};
use dpif::{DpAction, PmdId};
use flow::{DpPort, PackedFlow};
use ofproto::revalidate::each_current;
use ofproto::ukey::Walk;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time without changes of the rules before flows are written, and shortest pause between two writings.
const PAUSE: Duration = Duration::from_secs(1);
/// Length of a pause in those of a writing.
const PAUSE_FACTOR: u32 = 100;
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// Most flows that are kept.
const FLOWS_MAX: usize = 65_536;
/// Bytes that a flow and its list of actions take at most, about.
const FLOW_BYTES_MAX: u64 = 8192;

/// Writes the file.
pub(in crate::state) struct Writer {
    files: Files,
    boot: String,
    program: String,
    /// Flows to keep, with the digest of their settings once that is known.
    sources: Option<(FlowSources, Option<u64>)>,
    /// The file may be there, with contents of this checksum.
    is_written: bool,
    checksum: u32,
    /// Changes of rules so far.
    changes: u64,
    next: Instant,
}

impl Writer {
    /// A file of the last process, if there is one, is not of this one's flows.
    pub(in crate::state) fn new(files: &Files, boot: &str, program: &str) -> Writer {
        Writer {
            files: files.clone(),
            boot: boot.to_string(),
            program: program.to_string(),
            sources: None,
            is_written: true,
            checksum: 0,
            changes: 0,
            next: Instant::now(),
        }
    }

    /// Keeps flows of these datapaths from now on.
    pub(in crate::state) fn keep(&mut self, sources: FlowSources) {
        self.sources = Some((sources, None));
        // Another thread may have removed the file.
        self.checksum = 0;
        self.next = Instant::now() + PAUSE;
    }

    /// Time of the next writing; `None`: there is nothing to write.
    pub(in crate::state) fn next(&self) -> Option<Instant> {
        self.sources.as_ref().map(|_| self.next)
    }

    /// Rules, groups or meters change: the flows may follow from them no longer.
    pub(in crate::state) fn changed(&mut self) {
        self.changes += 1;
        self.next = Instant::now() + PAUSE;
        self.remove();
    }

    /// Changes so far.
    pub(in crate::state) fn changes(&self) -> u64 {
        self.changes
    }

    /// Removes the file.
    pub(in crate::state) fn remove(&mut self) {
        self.is_written = self.is_written && !remove_flows(&self.files);
    }

    /// The next file, if it is due. It is put in place by [`Writer::put`], once the caller has found no changes.
    pub(in crate::state) fn make(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (sources, digest) = self.sources.as_mut().filter(|_| now >= self.next)?;
        self.next = now + PAUSE;
        if !sources.hold() {
            self.remove();
            return None;
        }
        let digest = *digest.get_or_insert_with(|| sources.settings.digest());
        let made = file(sources, Reader { boot: &self.boot, program: &self.program, digest });
        self.next = now + PAUSE.max(now.elapsed() * PAUSE_FACTOR);
        if made.is_none() {
            self.remove();
        }
        made
    }

    /// Puts a file in place.
    pub(in crate::state) fn put(&mut self, bytes: &[u8]) {
        if !self.sources.as_ref().is_some_and(|(sources, _)| sources.hold()) {
            return;
        }
        let checksum = crc32fast::hash(bytes);
        if std::mem::replace(&mut self.is_written, true) && self.checksum == checksum {
            return;
        }
        self.checksum = checksum;
        let written = create_own(&self.files.next_flows)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&self.files.next_flows, &self.files.flows));
        if let Err(e) = written {
            log::warn!(target: "state", "{}: {e}: the next process may begin without flows", self.files.flows.display());
            self.next = Instant::now() + RETRY;
            self.remove();
        }
    }
}

/// The bytes of a file; `None`: there are no flows.
fn file(sources: &FlowSources, reader: Reader<'_>) -> Option<Vec<u8>> {
    let mut out = reader.line().into_bytes();
    for Numbered { bridge, name, number } in &sources.numbers {
        if !bridge.contains(char::is_control) && !name.contains(char::is_control) {
            out.extend(format!("interface\t{}\t{bridge}\t{name}\n", number.0).as_bytes());
        }
    }
    let mut left = FLOWS_MAX;
    for source in &sources.datapaths {
        left -= add_datapath(&mut out, source, left);
    }
    let end = end_line(&out);
    out.extend(end.as_bytes());
    (left < FLOWS_MAX).then_some(out)
}

/// Lists of actions in the file.
#[derive(Default)]
struct Lists {
    /// Numbers by list; `None`: flows with it are not kept.
    numbers: HashMap<Arc<[DpAction]>, Option<u32>>,
    count: u32,
    text: String,
}

impl Lists {
    fn number(&mut self, actions: &Arc<[DpAction]>, ports: &BTreeSet<DpPort>) -> Option<u32> {
        if let Some(known) = self.numbers.get(actions) {
            return *known;
        }
        let is_kept = stand_alone(actions) && use_ports(actions, |port| ports.contains(&port));
        let text = is_kept.then(|| text_of(actions)).flatten();
        let number = text.map(|text| {
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "actions\t{text}");
            self.count += 1;
            self.count - 1
        });
        self.numbers.insert(actions.clone(), number);
        number
    }
}

/// The text of a list of actions; `None`: it would be read as another one.
fn text_of(actions: &Arc<[DpAction]>) -> Option<String> {
    let text = if actions.is_empty() { String::new() } else { format_actions(actions, &NumbersOnly) };
    super::parse_list(&text).is_some_and(|read| read == *actions).then_some(text)
}

/// Adds a datapath with at most `max` flows; returns their number.
fn add_datapath(out: &mut Vec<u8>, source: &FlowSource, max: usize) -> usize {
    let is_line = |port: &&dpif::PortInfo| !port.name.contains(char::is_control);
    let ports: BTreeSet<DpPort> = source.ports.iter().filter(is_line).map(|port| port.number).collect();
    let (mut records, mut count) = (Vec::new(), 0);
    let mut lists = Lists::default();
    let mut walk = Some(Walk::default());
    while let Some(from) = walk {
        let mut some = Vec::new();
        walk = each_current(&source.backer, from, |ufid, pmd, ukey| {
            if let PmdId::Core(core) = pmd
                && ports.contains(&ukey.flow.in_port())
            {
                some.push((ufid.0, core, ukey.flow.clone(), ukey.actions.clone()));
            }
        });
        // Flows are locked no longer.
        for (ufid, core, flow, actions) in some {
            let has_room = count < max
                && (out.len() + records.len() + lists.text.len()) as u64 + FLOW_BYTES_MAX < FILE_MAX;
            if has_room && let Some(list) = lists.number(&actions, &ports) {
                count += usize::from(add_record(&mut records, (ufid, core, list), &flow));
            }
        }
    }
    let mut lines = format!("datapath\t{:016x}\t{}\n", source.hash_seed, source.datapath);
    for port in source.ports.iter().filter(is_line) {
        let _ = writeln!(lines, "port\t{}\t{}\t{}", port.number.0, port.type_name, port.name);
    }
    let _ = writeln!(lines, "{}flows\t{count}", lists.text);
    out.extend(lines.as_bytes());
    out.extend(records);
    count
}

/// Adds the record of a flow; `false`: its packets have been recirculated.
fn add_record(out: &mut Vec<u8>, (ufid, core, list): (u128, u16, u32), flow: &PackedFlow) -> bool {
    let (key, mask) = (flow.key(), flow.mask());
    if key.base.recirc_id != 0 {
        return false;
    }
    out.reserve(RECORD_BYTES + 2 * BLOCK_BYTES);
    out.extend(ufid.to_le_bytes());
    out.extend(core.to_le_bytes());
    out.extend(list.to_le_bytes());
    for i in key.present_blocks() {
        for block in [&key, &mask] {
            block.block(i).iter().for_each(|word| out.extend(word.to_le_bytes()));
        }
    }
    true
}
