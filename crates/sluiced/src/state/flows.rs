//! Megaflows kept for the next process: it forwards by them while it restores the rules.
//!
//! The file (`NAME.flows`) is there only while its flows follow from the present rules, groups, meters and settings: the thread
//! that writes the file of state removes it before it writes a change of those ([`Writer::changed`]), and writes it again once
//! there are none for a moment. Settings may change while no process runs, so the file names their digest, and the program that
//! wrote it, for whose memory layout keys are written. A process reads the file once and removes it.
//!
//! The file has lines of text and, after a line `flows`, that many records; the last line has the CRC-32 of all before. A record
//! has these parts, numbers little-endian:
//!
//! | part | bytes |
//! | --- | --- |
//! | ufid, thread, number of the list of actions | 16, 2, 4 |
//! | base blocks of the key and of the mask | 64, 64 |
//! | for each extension block of the key: that of the key, that of the mask | 64, 64 |

mod writer;

#[cfg(test)]
mod tests;

pub(super) use writer::Writer;

use dpif::text::{NumbersOnly, parse_actions};
use dpif::{DpAction, PortInfo};
use flow::{DpPort, FlowKey, KeyMask, OfPort, PackedFlow, Ufid};
use ofproto::backer::Backer;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vswitch::config::Translated;

/// First word of the file, and its version.
const MAGIC: &str = "sluice-flows";
const VERSION: &str = "1";
/// Most bytes of a file.
const FILE_MAX: u64 = 32 << 20;
/// Bytes of a record without extension blocks, and of a block.
const RECORD_BYTES: usize = 22 + 2 * BLOCK_BYTES;
const BLOCK_BYTES: usize = 64;
/// Bytes of the last line.
const END_BYTES: usize = "end\t01234567\n".len();

/// A datapath whose flows are kept. Its threads own no datapath: the end of one needs the main thread.
#[derive(Clone)]
pub(crate) struct FlowSource {
    /// Its name.
    pub(crate) datapath: String,
    /// Key of its hash functions.
    pub(crate) hash_seed: u64,
    /// Its ports.
    pub(crate) ports: Vec<PortInfo>,
    pub(crate) backer: Arc<Backer>,
    /// Changes of its ports, and their number when `ports` were read.
    pub(crate) changes: (Arc<AtomicU64>, u64),
}

/// All flows to keep, and the settings that they were made from.
pub(crate) struct FlowSources {
    pub(crate) datapaths: Vec<FlowSource>,
    pub(crate) numbers: Vec<Numbered>,
    pub(crate) settings: Translated,
    /// Changes of the settings, and their number when these came into force.
    pub(crate) changes: (Arc<AtomicU64>, u64),
}

impl FlowSources {
    /// Whether the ports and the settings are still these.
    pub(crate) fn hold(&self) -> bool {
        let holds = |(changes, then): &(Arc<AtomicU64>, u64)| changes.load(Ordering::Acquire) == *then;
        holds(&self.changes) && self.datapaths.iter().all(|datapath| holds(&datapath.changes))
    }
}

/// An interface with its OpenFlow number, which rules and actions name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) bridge: String,
    pub(crate) name: String,
    pub(crate) number: OfPort,
}

/// Flows of the last process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptFlows {
    /// The interfaces of that process.
    pub(crate) numbers: Vec<Numbered>,
    /// By the names of their datapaths.
    pub(crate) datapaths: BTreeMap<String, KeptDatapath>,
}

/// The flows of a datapath.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeptDatapath {
    /// Key of its hash functions.
    pub(crate) hash_seed: u64,
    /// Its ports.
    pub(crate) ports: Vec<PortInfo>,
    pub(crate) flows: Vec<KeptFlow>,
}

/// A flow, with its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptFlow {
    pub(crate) ufid: Ufid,
    pub(crate) core: u16,
    pub(crate) flow: PackedFlow,
    pub(crate) actions: Arc<[DpAction]>,
}

impl KeptFlow {
    /// Whether it uses only ports that satisfy `is`.
    pub(crate) fn uses(&self, is: impl Fn(DpPort) -> bool + Copy) -> bool {
        is(self.flow.in_port()) && use_ports(&self.actions, is)
    }
}

/// Whether these actions use only ports that satisfy `is`.
fn use_ports(actions: &[DpAction], is: impl Fn(DpPort) -> bool + Copy) -> bool {
    let uses_another = |action: &DpAction| match action {
        DpAction::Output(output) => !is(output.0),
        DpAction::TnlPush(push) => !is(push.tnl_port) || !is(push.out_port),
        DpAction::TnlPop(pop) => !is(pop.0),
        _ => false,
    };
    !actions.iter().any(|action| action.any(uses_another))
}

/// Whether these actions need nothing that comes with the rules: no meters, frozen states, slow path, connections.
fn stand_alone(actions: &[DpAction]) -> bool {
    let needs_more = |action: &DpAction| match action {
        DpAction::Output(_)
        | DpAction::Set(_)
        | DpAction::PushVlan(_)
        | DpAction::PopVlan(_)
        | DpAction::Trunc(_)
        | DpAction::Clone(_)
        | DpAction::Drop(_)
        | DpAction::PushMpls(_)
        | DpAction::PopMpls(_)
        | DpAction::CtClear(_)
        | DpAction::PushEth(_)
        | DpAction::PopEth(_)
        | DpAction::PushNsh(_)
        | DpAction::PopNsh(_)
        | DpAction::AddMpls(_)
        | DpAction::CheckPktLen(_)
        | DpAction::DecTtl(_)
        | DpAction::TnlPush(_)
        | DpAction::TnlPop(_) => false,
        DpAction::Userspace(_)
        | DpAction::Recirc(_)
        | DpAction::Meter(_)
        | DpAction::Sample(_)
        | DpAction::Psample(_)
        | DpAction::Hash(_)
        | DpAction::Ct(_)
        | DpAction::LbOutput(_)
        | DpAction::Foreign(_) => true,
    };
    !actions.iter().any(|action| action.any(needs_more))
}

/// Names the file of the program that runs; another build is another file.
pub(super) fn program() -> String {
    use std::os::unix::fs::MetadataExt as _;
    let named = std::fs::metadata("/proc/self/exe").map(|file| {
        format!("{}.{}.{}.{}.{}", file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec())
    });
    // Without a name no file is used.
    named.unwrap_or_default()
}

/// A user of a file: a process of the same start of the machine and of the same program, with the same settings.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) boot: &'a str,
    pub(super) program: &'a str,
    pub(super) digest: u64,
}

impl Reader<'_> {
    fn line(&self) -> String {
        format!("{MAGIC}\t{VERSION}\t{}\t{}\t{:016x}\n", self.boot, self.program, self.digest)
    }
}

/// Reads a file; `None`: it is for others.
///
/// # Errors
/// It cannot be read, or is damaged.
pub(super) fn read(mut file: File, reader: Reader<'_>) -> io::Result<Option<KeptFlows>> {
    let mut bytes = Vec::new();
    file.by_ref().take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    let whole = bytes.split_at_checked(bytes.len().saturating_sub(END_BYTES));
    let (content, end) =
        whole.filter(|_| bytes.len() as u64 <= FILE_MAX).ok_or_else(|| damaged("its size"))?;
    if end != end_line(content).as_bytes() {
        return Err(damaged("its checksum"));
    }
    match content.strip_prefix(reader.line().as_bytes()) {
        Some(rest) if !reader.program.is_empty() => parse(rest).map(Some),
        _ => Ok(None),
    }
}

fn end_line(content: &[u8]) -> String {
    format!("end\t{:08x}\n", crc32fast::hash(content))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is wrong"))
}

/// Reads the lines and records behind the first line.
pub(super) fn parse(mut rest: &[u8]) -> io::Result<KeptFlows> {
    let mut all = KeptFlows::default();
    let mut at = None;
    let mut lists: Vec<Arc<[DpAction]>> = Vec::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged("a line"))?;
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        let line = std::str::from_utf8(line).map_err(|_| damaged("a line"))?;
        let (kind, fields) = line.split_once('\t').ok_or_else(|| damaged("a line"))?;
        match (kind, &mut at) {
            ("datapath", _) => {
                let (seed, name) = fields.split_once('\t').ok_or_else(|| damaged("a datapath"))?;
                let hash_seed = u64::from_str_radix(seed, 16).map_err(|_| damaged("a datapath"))?;
                lists.clear();
                let datapath = KeptDatapath { hash_seed, ports: Vec::new(), flows: Vec::new() };
                at = Some(all.datapaths.entry(name.to_string()).insert_entry(datapath).into_mut());
            }
            ("interface", None) => {
                all.numbers.push(parse_numbered(fields).ok_or_else(|| damaged("an interface"))?);
            }
            ("port", Some(datapath)) => {
                datapath.ports.push(parse_port(fields).ok_or_else(|| damaged("a port"))?);
            }
            ("actions", Some(_)) => {
                let list = parse_list(fields).ok_or_else(|| damaged("a list of actions"))?;
                lists.push(list);
            }
            ("flows", Some(datapath)) => {
                let count: usize = fields.parse().map_err(|_| damaged("a number of flows"))?;
                for _ in 0..count {
                    let flow = take_record(&mut rest, &lists).ok_or_else(|| damaged("a flow"))?;
                    datapath.flows.push(flow);
                }
            }
            _ => return Err(damaged("a line")),
        }
    }
    Ok(all)
}

fn parse_port(fields: &str) -> Option<PortInfo> {
    let [number, type_name, name] = fields.splitn(3, '\t').collect::<Vec<_>>()[..] else { return None };
    let (type_name, name) = (type_name.to_string(), name.to_string());
    Some(PortInfo { number: DpPort(number.parse().ok()?), name, type_name })
}

fn parse_numbered(fields: &str) -> Option<Numbered> {
    let [number, bridge, name] = fields.splitn(3, '\t').collect::<Vec<_>>()[..] else { return None };
    let (bridge, name) = (bridge.to_string(), name.to_string());
    Some(Numbered { bridge, name, number: OfPort(number.parse().ok()?) })
}

fn parse_list(text: &str) -> Option<Arc<[DpAction]>> {
    let actions = match text {
        "" => Vec::new(),
        text => parse_actions(text, &NumbersOnly).ok()?,
    };
    stand_alone(&actions).then(|| actions.into())
}

fn take_record(rest: &mut &[u8], lists: &[Arc<[DpAction]>]) -> Option<KeptFlow> {
    let (record, after) = rest.split_at_checked(RECORD_BYTES)?;
    *rest = after;
    let (head, blocks) = record.split_at(RECORD_BYTES - 2 * BLOCK_BYTES);
    let (mut key, mut mask) = (FlowKey::default(), KeyMask::default());
    *key.block_mut(0) = words(&blocks[..BLOCK_BYTES]);
    *mask.block_mut(0) = words(&blocks[BLOCK_BYTES..]);
    if !key.has_known_shape() {
        return None;
    }
    for i in key.extension_blocks() {
        let (block, after) = rest.split_at_checked(2 * BLOCK_BYTES)?;
        *rest = after;
        *key.block_mut(i) = words(&block[..BLOCK_BYTES]);
        *mask.block_mut(i) = words(&block[BLOCK_BYTES..]);
    }
    let list = u32::from_le_bytes(head[18..22].try_into().ok()?);
    let is_received = key.base.recirc_id == 0;
    is_received.then_some(KeptFlow {
        ufid: Ufid(u128::from_le_bytes(head[..16].try_into().ok()?)),
        core: u16::from_le_bytes(head[16..18].try_into().ok()?),
        flow: PackedFlow::new(&key, &mask),
        actions: lists.get(list as usize)?.clone(),
    })
}

fn words(block: &[u8]) -> [u64; 8] {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_le_bytes);
    }
    words
}
