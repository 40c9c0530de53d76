//! Description of the switch, statistics of tables and queues, configuration of queues.
//!
//! Sources: OpenFlow 1.0 §5.3.4, §5.3.5; 1.3 §7.3.5.1, §7.3.5.4, §7.3.5.8, §7.3.6.

use flow::{OfPort, TableId};
use ofp_wire::ErrorKind;
use ofp_wire::Version;
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

/// Counters of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Table.
    pub table: TableId,
    /// Name (OpenFlow 1.0).
    pub name: String,
    /// `OFPFW10_*` that it can wildcard (OpenFlow 1.0).
    pub wildcards: u32,
    /// Maximum number of rules (OpenFlow 1.0).
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
    r.skip(3)?;
    if r.version == Version::V10 {
        t.name = r.text(32)?;
        (t.wildcards, t.max_entries) = (r.u32()?, r.u32()?);
    }
    (t.active_count, t.lookup_count, t.matched_count) = (r.u32()?, r.u64()?, r.u64()?);
    Ok(t)
}

pub(crate) fn put_table(w: &mut Writer, t: &TableStats) {
    w.u8(t.table.0);
    w.zeros(3);
    if w.version == Version::V10 {
        w.text(&t.name, 32);
        w.u32(t.wildcards);
        w.u32(t.max_entries);
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
        return Err(ErrorKind::QofcBadPort);
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
    let (duration_s, duration_ns) = if old { (0, 0) } else { (r.u32()?, r.u32()?) };
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
    if !old {
        w.u32(q.duration_s);
        w.u32(q.duration_ns);
    }
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
    let head_len = if r.version == Version::V10 { 8 } else { 16 };
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
        if !old {
            w.u32(m.port.0);
        }
        let len_at = w.mark() - mark;
        w.zeros(if old { 4 } else { 8 });
        let max = if old { None } else { q.max_rate_permille };
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
