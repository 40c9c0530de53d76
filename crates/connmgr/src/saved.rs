//! [`SavedConn`]: a connection on its way to another process, which goes on with it. Neither side reconnects.
//!
//! Its text is one JSON object in a line. A reader skips names that it does not know, and leaves absent ones as they begin.
//! Requests that wait in the socket stay there. Begun requests do not pass: such a connection waits, or ends.

mod bridge;

pub use bridge::SavedBridge;

use super::conn::{Conn, ConnKind};
use super::{BridgeCtx, ConnId, Connmgr};
use openflow::budget::Budgets;
use openflow::msg::asyncs::AsyncConfig;
use openflow::msg::control::ControllerRole;
use openflow::session::{SavedSession, Session};
use openflow::{Format, Version, VersionSet};
use serde_json::{Map, Value, json};

/// Most bytes of unprocessed input and of unsent output, of each.
const BYTES_MAX: usize = 12 << 10;

const NO_SESSION: &str = "no version is agreed yet, or its peer reads no more";

/// State of a connection for another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedConn {
    kind: ConnKind,
    session: SavedSession,
    has_asked: bool,
    is_admitted: bool,
    connected_ms: u64,
    role: ControllerRole,
    asyncs: AsyncConfig,
    miss_send_len_bytes: u16,
    controller_id: u16,
    packet_in_format: Format,
    /// Transaction id of a barrier that waits for the datapath.
    barrier: Option<u32>,
}

/// The reason why a connection cannot pass to another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CannotPass {
    /// Not yet: it has something under way.
    Now(&'static str),
    /// Not at all.
    Ever(&'static str),
}

impl CannotPass {
    /// Its text.
    pub fn why(self) -> &'static str {
        match self {
            CannotPass::Now(why) | CannotPass::Ever(why) => why,
        }
    }
}

const KINDS: [(ConnKind, &str); 3] =
    [(ConnKind::Service, "service"), (ConnKind::Controller, "controller"), (ConnKind::Snoop, "snoop")];
const ROLES: [(ControllerRole, &str); 3] =
    [(ControllerRole::Equal, "equal"), (ControllerRole::Master, "master"), (ControllerRole::Slave, "slave")];
const FORMATS: [(Format, &str); 3] =
    [(Format::Standard, "standard"), (Format::Nxt, "nxt"), (Format::Nxt2, "nxt2")];

/// The word for a value; those of tables have one each.
fn word<T: PartialEq>(table: &[(T, &'static str)], value: &T) -> &'static str {
    table.iter().find(|(known, _)| known == value).map_or("", |(_, word)| word)
}

/// The fields of asynchronous messages, with their names.
fn async_fields(asyncs: &mut AsyncConfig) -> [(&'static str, &mut [u32; 2]); 6] {
    [
        ("packet_in", &mut asyncs.packet_in),
        ("port_status", &mut asyncs.port_status),
        ("flow_removed", &mut asyncs.flow_removed),
        ("role_status", &mut asyncs.role_status),
        ("table_status", &mut asyncs.table_status),
        ("request_forward", &mut asyncs.request_forward),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fields of an object by their names.
struct Reader<'a>(&'a Map<String, Value>);

impl Reader<'_> {
    /// A field, or its start value.
    fn get<T>(&self, name: &str, start: T, read: impl FnOnce(&Value) -> Option<T>) -> Result<T, String> {
        match self.0.get(name) {
            Some(value) => read(value).ok_or_else(|| format!("{name}: not a value of this field")),
            None => Ok(start),
        }
    }

    /// A field; `None` if it is absent or null.
    fn optional<T>(&self, name: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>, String> {
        self.get(name, None, |value| if value.is_null() { Some(None) } else { read(value).map(Some) })
    }

    fn number<T: TryFrom<u64>>(&self, name: &str, start: T) -> Result<T, String> {
        self.get(name, start, |value| value.as_u64()?.try_into().ok())
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        self.get(name, false, Value::as_bool)
    }

    fn word<T: Copy>(&self, name: &str, table: &[(T, &str)], start: T) -> Result<T, String> {
        self.get(name, start, |value| {
            let text = value.as_str()?;
            table.iter().find(|(_, word)| *word == text).map(|(known, _)| *known)
        })
    }

    /// Bytes as pairs of hexadecimal digits.
    fn bytes(&self, name: &str) -> Result<Vec<u8>, String> {
        self.get(name, Vec::new(), |value| {
            let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
            let pair = |pair: &[u8]| match pair {
                [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
                _ => None,
            };
            let digits = value.as_str().filter(|text| text.len() <= 2 * BYTES_MAX)?;
            digits.as_bytes().chunks(2).map(pair).collect()
        })
    }
}

impl SavedConn {
    /// Its text: one line.
    pub fn text(&self) -> String {
        let SavedConn {
            kind,
            session: SavedSession { version, table_id_in_command, next_xid, last_input_ms, input, output },
            has_asked,
            is_admitted,
            connected_ms,
            role,
            asyncs,
            miss_send_len_bytes,
            controller_id,
            packet_in_format,
            barrier,
        } = self;
        let mut asyncs = *asyncs;
        let fields = async_fields(&mut asyncs).map(|(name, bits)| (name.to_string(), json!(bits)));
        let object = json!({
            "kind": word(&KINDS, kind),
            "version": version.0,
            "table_id_in_command": table_id_in_command,
            "next_xid": next_xid,
            "last_input_ms": last_input_ms,
            "input": hex(input),
            "output": hex(output),
            "has_asked": has_asked,
            "is_admitted": is_admitted,
            "connected_ms": connected_ms,
            "role": word(&ROLES, role),
            "async_format": word(&FORMATS, &asyncs.format),
            "asyncs": Map::from_iter(fields),
            "miss_send_len": miss_send_len_bytes,
            "controller_id": controller_id,
            "packet_in_format": word(&FORMATS, packet_in_format),
            "barrier": barrier,
        });
        object.to_string()
    }

    /// Reads its text.
    ///
    /// # Errors
    /// The field that is wrong, or missing and needed.
    pub fn parse(text: &str) -> Result<SavedConn, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let all = Reader(value.as_object().ok_or("not an object")?);
        let version = Version(all.number("version", 0)?);
        if !VersionSet::IMPLEMENTED.contains(version) {
            return Err(format!("version: {} is not spoken", version.0));
        }
        let mut asyncs = AsyncConfig {
            format: all.word("async_format", &FORMATS, Format::Standard)?,
            ..AsyncConfig::default()
        };
        if let Some(value) = all.0.get("asyncs") {
            let bits = Reader(value.as_object().ok_or("asyncs: not an object")?);
            for (name, field) in async_fields(&mut asyncs) {
                *field = bits.get(name, *field, |value| match value.as_array()?.as_slice() {
                    [own, slave] => Some([own.as_u64()?.try_into().ok()?, slave.as_u64()?.try_into().ok()?]),
                    _ => None,
                })?;
            }
        }
        Ok(SavedConn {
            kind: all.word("kind", &KINDS, ConnKind::Service)?,
            session: SavedSession {
                version,
                table_id_in_command: all.flag("table_id_in_command")?,
                next_xid: all.number("next_xid", 1)?,
                last_input_ms: all.number("last_input_ms", 0)?,
                input: all.bytes("input")?,
                output: all.bytes("output")?,
            },
            has_asked: all.flag("has_asked")?,
            is_admitted: all.flag("is_admitted")?,
            connected_ms: all.number("connected_ms", 0)?,
            role: all.word("role", &ROLES, ControllerRole::Equal)?,
            asyncs,
            miss_send_len_bytes: all.number("miss_send_len", 0)?,
            controller_id: all.number("controller_id", 0)?,
            packet_in_format: all.word("packet_in_format", &FORMATS, Format::Standard)?,
            barrier: all.optional("barrier", |value| value.as_u64()?.try_into().ok())?,
        })
    }

    /// Time at which its sides agreed on a version.
    pub fn connected_ms(&self) -> u64 {
        self.connected_ms
    }
}

/// Whether a connection can pass to another process: nothing is under way.
fn may_pass(conn: &Conn) -> Result<(), CannotPass> {
    if conn.is_over() {
        return Err(CannotPass::Ever("it is over"));
    }
    if !conn.monitors.is_empty() {
        return Err(CannotPass::Ever("it has flow monitors"));
    }
    if !conn.session.may_pass() {
        return Err(CannotPass::Ever(NO_SESSION));
    }
    if !conn.bundles.is_empty() || conn.commit_bytes > 0 {
        return Err(CannotPass::Now("it has an open bundle"));
    }
    let has_mods = conn.held.is_some() || !conn.mods.is_empty() || !conn.table_changes.is_empty();
    if conn.blocked || conn.waits || conn.flush.is_some() || has_mods {
        return Err(CannotPass::Now("a request is under way"));
    }
    if conn.dump.is_some() || conn.session.output().len() > BYTES_MAX {
        return Err(CannotPass::Now("its peer reads a long reply"));
    }
    if conn.session.pending().len() > BYTES_MAX {
        return Err(CannotPass::Now("it has many requests"));
    }
    Ok(())
}

/// The state of a connection, if nothing is under way.
fn save(conn: &Conn) -> Result<SavedConn, CannotPass> {
    may_pass(conn)?;
    let session = conn.session.save().ok_or(CannotPass::Ever(NO_SESSION))?;
    Ok(SavedConn {
        kind: conn.kind,
        session,
        has_asked: conn.has_asked,
        is_admitted: conn.is_admitted,
        connected_ms: conn.connected_ms,
        role: conn.role,
        asyncs: conn.asyncs,
        miss_send_len_bytes: conn.miss_send_len_bytes,
        controller_id: conn.controller_id,
        packet_in_format: conn.packet_in_format,
        barrier: conn.barrier.as_ref().map(|barrier| barrier.xid),
    })
}

/// Goes on with the state of a connection of another process.
fn adopt(conn: &mut Conn, saved: SavedConn, budgets: &Budgets, ctx: &BridgeCtx<'_>, now_ms: u64) {
    let SavedConn {
        kind: _,
        session,
        has_asked,
        is_admitted,
        connected_ms,
        role,
        asyncs,
        miss_send_len_bytes,
        controller_id,
        packet_in_format,
        barrier,
    } = saved;
    conn.fresh = !session.input.is_empty();
    conn.session = Session::resume(*conn.session.config(), session, budgets);
    (conn.has_asked, conn.is_admitted, conn.connected_ms) = (has_asked, is_admitted, connected_ms);
    (conn.role, conn.asyncs, conn.miss_send_len_bytes) = (role, asyncs, miss_send_len_bytes);
    (conn.controller_id, conn.packet_in_format) = (controller_id, packet_in_format);
    conn.use_tlv(ctx);
    // A barrier waits for the datapath of this process.
    conn.changed_epoch = ctx.backer.epoch();
    if let Some(xid) = barrier {
        // A barrier reply has a form in every version.
        let _ = conn.begin_barrier(xid, ctx, now_ms);
    }
}

impl Connmgr {
    /// Whether a connection can pass to another process.
    ///
    /// # Errors
    /// It cannot, now or ever.
    pub fn may_pass(&self, id: ConnId) -> Result<(), CannotPass> {
        self.conns.get(&id).map_or(Err(CannotPass::Ever("it is over")), may_pass)
    }

    /// State of a connection for another process, unless something is under way. Packet-ins that wait for the rate limit stay.
    ///
    /// # Errors
    /// It cannot pass, now or ever.
    pub fn save(&self, id: ConnId) -> Result<SavedConn, CannotPass> {
        self.conns.get(&id).map_or(Err(CannotPass::Ever("it is over")), save)
    }

    /// Goes on with a connection of another process. Its owner configures it.
    pub fn adopt(
        &mut self,
        saved: SavedConn,
        versions: VersionSet,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) -> ConnId {
        let id = self.open(saved.kind, versions, now_ms);
        if let Some(conn) = self.conns.get_mut(&id) {
            adopt(conn, saved, &self.budgets, ctx, now_ms);
            conn.session.set_log(self.keeps_messages);
        }
        self.watchers_changed();
        self.connections_changed(ctx, now_ms);
        id
    }

    /// Reports removed rules that wait, to connections that are about to pass to another process.
    pub fn report_last(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        let mut work = ctx.backer.events.removed_len(ctx.bridge);
        self.send_flow_removed(ctx, now_ms, &mut work);
        self.send_table_status(ctx);
    }
}
