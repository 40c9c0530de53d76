//! Description of the switch, statistics of tables and queues, configuration of queues.
//!
//! Sources: OpenFlow 1.0 §5.3.4, §5.3.5; 1.1 §A.3.5.3; 1.2 §A.3.5.3; 1.3 §7.3.5.1, §7.3.5.4, §7.3.5.8, §7.3.6; 1.4
//! §7.3.5.8, §7.3.5.19.

use flow::{OfPort, TableId};
use ofp_wire::ErrorKind;
use ofp_wire::Version;
use ofp_wire::prop;
use ofp_wire::{Reader, Res, Writer};

/// Description of the switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SwitchDesc {
    /// Manufacturer.
    pub manufacturer: String,
    /// Hardware.
    pub hardware: String,
    /// Software.
    pub software: String,
    /// Serial number.
    pub serial: String,
    /// The datapath, for people.
    pub datapath: String,
}

/// Bytes of the texts of a description, in order.
const DESC_BYTES: [usize; 5] = [256, 256, 256, 32, 256];

pub(crate) fn decode_desc(r: &mut Reader<'_>) -> Res<SwitchDesc> {
    let [a, b, c, d, e] = DESC_BYTES;
    Ok(SwitchDesc {
        manufacturer: r.text(a)?,
        hardware: r.text(b)?,
        software: r.text(c)?,
        serial: r.text(d)?,
        datapath: r.text(e)?,
    })
}

pub(crate) fn encode_desc(m: &SwitchDesc, w: &mut Writer) {
    for (text, n) in
        [&m.manufacturer, &m.hardware, &m.software, &m.serial, &m.datapath].into_iter().zip(DESC_BYTES)
    {
        w.text(text, n);
    }
}

/// Abilities of a table, in its statistics (OpenFlow 1.1 and 1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableAbilities {
    /// `OFPFMF_*` that it can match (1.1), or `1 << OFPXMT_OFB_*` (1.2).
    pub matches: u64,
    /// Fields of `matches` that it can leave out; `OFPFW10_*` in OpenFlow 1.0.
    pub wildcards: u64,
    /// `1 << OFPIT_*`.
    pub instructions: u32,
    /// `1 << OFPAT_*` for the action set.
    pub write_actions: u32,
    /// `1 << OFPAT_*` to apply.
    pub apply_actions: u32,
    /// `1 << OFPXMT_OFB_*` that the action set may set (1.2).
    pub write_set_fields: u64,
    /// `1 << OFPXMT_OFB_*` that applied actions may set (1.2).
    pub apply_set_fields: u64,
    /// Bits of metadata that can be matched (1.2).
    pub metadata_match: u64,
    /// Bits of metadata that can be written (1.2).
    pub metadata_write: u64,
    /// `OFPTC_*`.
    pub config: u32,
}

/// Counters of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Table.
    pub table: TableId,
    /// Name (to OpenFlow 1.2).
    pub name: String,
    /// Its abilities (to OpenFlow 1.2).
    pub abilities: TableAbilities,
    /// Maximum number of rules (to OpenFlow 1.2).
    pub max_entries: u32,
    /// Rules.
    pub active_count: u32,
    /// Packets looked up.
    pub lookup_count: u64,
    /// Packets that hit.
    pub matched_count: u64,
}

pub(crate) fn read_table(r: &mut Reader<'_>) -> Res<TableStats> {
    let mut t = TableStats { table: TableId(r.u8()?), ..TableStats::default() };
    let a = &mut t.abilities;
    match r.version {
        Version::V10 => {
            r.skip(3)?;
            t.name = r.text(32)?;
            (a.wildcards, t.max_entries) = (r.u32()?.into(), r.u32()?);
        }
        Version::V11 => {
            r.skip(7)?;
            t.name = r.text(32)?;
            (a.wildcards, a.matches) = (r.u32()?.into(), r.u32()?.into());
            a.instructions = r.u32()?;
            (a.write_actions, a.apply_actions) = (r.u32()?, r.u32()?);
            (a.config, t.max_entries) = (r.u32()?, r.u32()?);
        }
        Version::V12 => {
            r.skip(7)?;
            t.name = r.text(32)?;
            (a.matches, a.wildcards) = (r.u64()?, r.u64()?);
            (a.write_actions, a.apply_actions) = (r.u32()?, r.u32()?);
            (a.write_set_fields, a.apply_set_fields) = (r.u64()?, r.u64()?);
            (a.metadata_match, a.metadata_write) = (r.u64()?, r.u64()?);
            a.instructions = r.u32()?;
            (a.config, t.max_entries) = (r.u32()?, r.u32()?);
        }
        _ => r.skip(3)?,
    }
    (t.active_count, t.lookup_count, t.matched_count) = (r.u32()?, r.u64()?, r.u64()?);
    Ok(t)
}

pub(crate) fn put_table(w: &mut Writer, t: &TableStats) {
    w.u8(t.table.0);
    let a = &t.abilities;
    match w.version {
        Version::V10 => {
            w.zeros(3);
            w.text(&t.name, 32);
            w.u32(a.wildcards as u32);
            w.u32(t.max_entries);
        }
        Version::V11 => {
            w.zeros(7);
            w.text(&t.name, 32);
            w.u32(a.wildcards as u32);
            w.u32(a.matches as u32);
            w.u32(a.instructions);
            w.u32(a.write_actions);
            w.u32(a.apply_actions);
            w.u32(a.config);
            w.u32(t.max_entries);
        }
        Version::V12 => {
            w.zeros(7);
            w.text(&t.name, 32);
            w.u64(a.matches);
            w.u64(a.wildcards);
            w.u32(a.write_actions);
            w.u32(a.apply_actions);
            w.u64(a.write_set_fields);
            w.u64(a.apply_set_fields);
            w.u64(a.metadata_match);
            w.u64(a.metadata_write);
            w.u32(a.instructions);
            w.u32(a.config);
            w.u32(t.max_entries);
        }
        _ => w.zeros(3),
    }
    w.u32(t.active_count);
    w.u64(t.lookup_count);
    w.u64(t.matched_count);
}

/// Any queue, in requests.
pub const QUEUE_ALL: u32 = u32::MAX;

/// Selects queues for statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStatsRequest {
    /// The port; `NONE` for all.
    pub port: OfPort,
    /// The queue, or [`QUEUE_ALL`].
    pub queue: u32,
}

pub(crate) fn decode_queue_request(r: &mut Reader<'_>) -> Res<QueueStatsRequest> {
    if r.version == Version::V10 {
        let port = OfPort::from_of10(r.u16()?);
        r.skip(2)?;
        // OpenFlow 1.0 has ALL where later versions have ANY.
        let port = if port == OfPort::ALL { OfPort::NONE } else { port };
        return Ok(QueueStatsRequest { port, queue: r.u32()? });
    }
    let port = r.u32()?;
    if !ofp_wire::nxm::port_number_ok(port) {
        return Err(ErrorKind::BacBadOutPort);
    }
    Ok(QueueStatsRequest { port: OfPort(port), queue: r.u32()? })
}

pub(crate) fn encode_queue_request(m: &QueueStatsRequest, w: &mut Writer) {
    if w.version == Version::V10 {
        let port = if m.port == OfPort::NONE { OfPort::ALL } else { m.port };
        w.u16(port.to_of10().unwrap_or(0xffff));
        w.zeros(2);
    } else {
        w.u32(m.port.0);
    }
    w.u32(m.queue);
}

/// Counters of a queue; `u64::MAX` is unknown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Port.
    pub port: OfPort,
    /// Queue.
    pub queue: u32,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped.
    pub tx_errors: u64,
    /// Age, whole seconds (OpenFlow 1.3).
    pub duration_s: u32,
    /// Age, the rest (OpenFlow 1.3).
    pub duration_ns: u32,
}

pub(crate) fn read_queue(r: &mut Reader<'_>) -> Res<QueueStats> {
    let old = r.version == Version::V10;
    let port = if old {
        let port = OfPort::from_of10(r.u16()?);
        r.skip(2)?;
        port
    } else {
        OfPort(r.u32()?)
    };
    let (queue, tx_bytes, tx_packets, tx_errors) = (r.u32()?, r.u64()?, r.u64()?, r.u64()?);
    let (duration_s, duration_ns) = if r.version < Version::V13 { (0, 0) } else { (r.u32()?, r.u32()?) };
    Ok(QueueStats { port, queue, tx_bytes, tx_packets, tx_errors, duration_s, duration_ns })
}

pub(crate) fn put_queue(w: &mut Writer, q: &QueueStats) {
    let old = w.version == Version::V10;
    if old {
        w.u16(q.port.to_of10().unwrap_or(0xffff));
        w.zeros(2);
    } else {
        w.u32(q.port.0);
    }
    w.u32(q.queue);
    w.u64(q.tx_bytes);
    w.u64(q.tx_packets);
    w.u64(q.tx_errors);
    if w.version >= Version::V13 {
        w.u32(q.duration_s);
        w.u32(q.duration_ns);
    }
}

/// OpenFlow 1.4: a length before the form of 1.3, properties behind it.
pub(crate) fn read_queue14(r: &mut Reader<'_>) -> Res<QueueStats> {
    let len = usize::from(r.clone().u16()?);
    let mut r = r.sub(len)?;
    r.skip(8)?;
    let stats = read_queue(&mut r)?;
    while !r.is_empty() {
        prop::read(&mut r)?;
    }
    Ok(stats)
}

pub(crate) fn put_queue14(w: &mut Writer, q: &QueueStats) {
    let mark = w.mark();
    w.zeros(8);
    put_queue(w, q);
    w.set_len(mark, 0);
}

/// The configuration of a queue (OpenFlow 1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueDesc {
    /// Port.
    pub port: OfPort,
    /// Queue.
    pub queue: Queue,
}

/// Property types of a queue's rates.
const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;

pub(crate) fn read_queue_desc(r: &mut Reader<'_>) -> Res<QueueDesc> {
    let mut head = r.clone();
    let (port, queue, len) = (OfPort(head.u32()?), head.u32()?, usize::from(head.u16()?));
    let mut r = r.sub(len)?;
    r.skip(16)?;
    let mut q = Queue { queue, ..Queue::default() };
    while !r.is_empty() {
        let (ty, mut p) = prop::read(&mut r)?;
        match ty {
            MIN_RATE => q.min_rate_permille = Some(p.u16()?),
            MAX_RATE => q.max_rate_permille = Some(p.u16()?),
            _ => {}
        }
    }
    Ok(QueueDesc { port, queue: q })
}

pub(crate) fn put_queue_desc(w: &mut Writer, q: &QueueDesc) {
    let mark = w.mark();
    w.u32(q.port.0);
    w.u32(q.queue.queue);
    w.zeros(8);
    for (ty, rate) in [(MIN_RATE, q.queue.min_rate_permille), (MAX_RATE, q.queue.max_rate_permille)] {
        if let Some(rate) = rate {
            prop::put_u16(w, ty, rate);
        }
    }
    w.set_len(mark, 8);
}

/// A queue of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    /// Queue.
    pub queue: u32,
    /// Rate guaranteed, in tenths of a percent.
    pub min_rate_permille: Option<u16>,
    /// Rate allowed, in tenths of a percent (OpenFlow 1.2).
    pub max_rate_permille: Option<u16>,
}

/// The queues of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// Port.
    pub port: OfPort,
    /// Its queues.
    pub queues: Vec<Queue>,
}

pub(crate) fn decode_queue_config(r: &mut Reader<'_>) -> Res<QueueConfig> {
    let old = r.version == Version::V10;
    let port = super::port::decode_request(r)?;
    r.skip(if old { 6 } else { 4 })?;
    let mut queues = Vec::new();
    while !r.is_empty() {
        queues.push(read_configured(r)?);
    }
    Ok(QueueConfig { port, queues })
}

fn read_configured(r: &mut Reader<'_>) -> Res<Queue> {
    let head_len = if r.version < Version::V12 { 8 } else { 16 };
    let mut head = r.clone();
    let mut q = Queue { queue: head.u32()?, ..Queue::default() };
    if head_len == 16 {
        head.skip(4)?;
    }
    let len = usize::from(head.u16()?);
    let mut body = r.sub(len)?;
    body.skip(head_len)?;
    while !body.is_empty() {
        let (ty, plen) = (body.u16()?, usize::from(body.u16()?));
        let mut p = body.sub(plen.checked_sub(4).ok_or(ErrorKind::BrcBadLen)?)?;
        p.skip(4)?;
        match ty {
            1 => q.min_rate_permille = Some(p.u16()?),
            2 => q.max_rate_permille = Some(p.u16()?),
            _ => {}
        }
    }
    Ok(q)
}

pub(crate) fn encode_queue_config(m: &QueueConfig, w: &mut Writer) {
    let old = w.version == Version::V10;
    if old {
        w.u16(m.port.to_of10().unwrap_or(0xffff));
        w.zeros(6);
    } else {
        w.u32(m.port.0);
        w.zeros(4);
    }
    // Limited to one message, as the standard has no parts here.
    for q in m.queues.iter().take(1300) {
        let mark = w.mark();
        w.u32(q.queue);
        let short = w.version < Version::V12;
        if !short {
            w.u32(m.port.0);
        }
        let len_at = w.mark() - mark;
        w.zeros(if short { 4 } else { 8 });
        let max = if short { None } else { q.max_rate_permille };
        for (ty, rate) in [(1, q.min_rate_permille), (2, max)] {
            if let Some(rate) = rate {
                w.u16(ty);
                w.u16(16);
                w.zeros(4);
                w.u16(rate);
                w.zeros(6);
            }
        }
        w.set_len(mark, len_at);
    }
}
