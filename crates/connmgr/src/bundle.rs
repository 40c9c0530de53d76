//! Bundles: messages stored until a commit executes them together (OpenFlow 1.4 §6.8, §7.3.9; ONF EXT-230 for 1.3).
//!
//! A bundle stores decoded messages, and their bytes for errors: flow-mods, group-mods, and packet-outs, whose packets
//! are sent once all changes are made, each with the tables of its turn. As in OVS, a message invalid by itself is refused
//! when it is added, and the bundle goes on without it; groups and meters must exist at its turn. Every bundle is atomic
//! and ordered, regardless of its flags. A commit is a [`Transaction`], executed in slices; its connection waits for it.
//! Bounds: [`MAX_BUNDLES`], [`MAX_BUNDLE_BYTES`], the idle timeout of [`ofproto::backer::Limits`]; bundles count as
//! unprocessed input, which is bounded over all connections.

use super::conn::Conn;
use super::forward::Forward;
use super::requests::Request;
use super::{BridgeCtx, ConnId, Connmgr, Shared};
use ofp_actions::Action;
use ofproto::flow_mod::{Mod, ModContext, PacketOfTurn, Progress, Transaction, check};
use openflow::msg::bundle::{BundleAdd, BundleControl, BundleControlType};
use openflow::msg::packet::PacketOut;
use openflow::{ErrorKind, HEADER_BYTES, Message, Version};
use std::collections::VecDeque;
use sync::Ordering;

/// Maximum bundles of a connection.
pub(super) const MAX_BUNDLES: usize = 64;
/// Maximum bytes of a connection's bundles together.
pub(super) const MAX_BUNDLE_BYTES: usize = 256 << 20;
/// Memory counted for a packet-out behind a change: the parts of a version of the tables that no other one has.
const VERSION_BYTES: usize = 8 << 10;
/// Offset of the inner message in `OFPT_BUNDLE_ADD_MESSAGE`.
const INNER_AT: usize = HEADER_BYTES + 8;
/// Bytes before that in `ONFT_BUNDLE_ADD_MESSAGE` of OpenFlow 1.3.
const EXPERIMENTER_BYTES: usize = 8;

pub(super) struct Bundle {
    flags: u16,
    closed: bool,
    mods: Vec<(Mod, Box<[u8]>)>,
    /// Bytes held by them.
    bytes: usize,
    used_ms: u64,
    /// Idle timeout, since its last message.
    idle_ms: u64,
    /// Beginning of the message that opened it, for errors.
    opened_by: Box<[u8]>,
}

impl Bundle {
    fn new(flags: u16, request: &Request<'_>, ctx: &BridgeCtx<'_>) -> Bundle {
        let head = &request.frame[..request.frame.len().min(64)];
        Bundle {
            flags,
            closed: false,
            mods: Vec::new(),
            bytes: 0,
            used_ms: request.now_ms,
            idle_ms: ctx.backer.limits.bundle_idle_ms.load(Ordering::Relaxed),
            opened_by: head.into(),
        }
    }

    pub(super) fn expires_ms(&self) -> u64 {
        self.used_ms + self.idle_ms
    }
}

/// A bundle being committed.
pub(super) struct Commit {
    /// The committing connection.
    conn: ConnId,
    bundle_id: u32,
    xid: u32,
    /// The request, for errors.
    frame: Box<[u8]>,
    version: Version,
    /// `None` once it has succeeded.
    transaction: Option<Transaction>,
    /// Packets to send then.
    packets: VecDeque<PacketOfTurn>,
}

impl Conn {
    pub(super) fn bundle_control(
        &mut self,
        m: BundleControl,
        request: &Request<'_>,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        let reply = match m.ty {
            BundleControlType::OpenRequest => {
                self.open_bundle(m.bundle_id, m.flags, request, ctx)?;
                BundleControlType::OpenReply
            }
            BundleControlType::CloseRequest => {
                let bundle = self.bundles.get_mut(&m.bundle_id).ok_or(ErrorKind::BfcBadId)?;
                let wrong = (bundle.closed, bundle.flags != m.flags);
                bundle.closed = true;
                bundle.used_ms = request.now_ms;
                if wrong != (false, false) {
                    self.bundles.remove(&m.bundle_id);
                    return Err(if wrong.0 { ErrorKind::BfcBundleClosed } else { ErrorKind::BfcBadFlags });
                }
                BundleControlType::CloseReply
            }
            BundleControlType::CommitRequest => {
                let bundle = self.bundles.remove(&m.bundle_id).ok_or(ErrorKind::BfcBadId)?;
                if bundle.flags != m.flags {
                    return Err(ErrorKind::BfcBadFlags);
                }
                return self.begin_commit(m.bundle_id, bundle, request, shared, ctx);
            }
            BundleControlType::DiscardRequest => {
                self.bundles.remove(&m.bundle_id).ok_or(ErrorKind::BfcBadId)?;
                BundleControlType::DiscardReply
            }
            BundleControlType::OpenReply
            | BundleControlType::CloseReply
            | BundleControlType::CommitReply
            | BundleControlType::DiscardReply => return Err(ErrorKind::BfcBadType),
        };
        let body = BundleControl { bundle_id: m.bundle_id, ty: reply, flags: 0 };
        self.reply(&Message::BundleControl(body), request.xid)
    }

    fn open_bundle(
        &mut self,
        id: u32,
        flags: u16,
        request: &Request<'_>,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        if self.bundles.remove(&id).is_some() {
            return Err(ErrorKind::BfcBadId);
        }
        if self.bundles.len() >= MAX_BUNDLES {
            return Err(ErrorKind::BfcOutOfBundles);
        }
        self.bundles.insert(id, Bundle::new(flags, request, ctx));
        Ok(())
    }

    /// Adds a message; opens the bundle if it does not exist.
    pub(super) fn bundle_add(
        &mut self,
        m: BundleAdd,
        request: &Request<'_>,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "bundles take few messages")]
        let change = match *m.message {
            Message::FlowMod(fm) => {
                check(&fm, &self.mod_context(&|_| true, ctx, request.now_ms))?;
                Mod::Flow(fm)
            }
            Message::GroupMod(gm) => Mod::Group(gm),
            Message::PacketOut(out) => {
                self.check_packet_out(&out, ctx, request.now_ms)?;
                Mod::Packet(Box::new(out))
            }
            _ => return Err(ErrorKind::BfcMsgUnsup),
        };
        let at = INNER_AT + if self.version() < Version::V14 { EXPERIMENTER_BYTES } else { 0 };
        let inner = request.frame.get(at..).ok_or(ErrorKind::BfcMsgBadLen)?;
        let len = inner.get(2..4).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
        let inner = inner.get(..len).ok_or(ErrorKind::BfcMsgBadLen)?;
        if !self.bundles.contains_key(&m.bundle_id) {
            self.open_bundle(m.bundle_id, m.flags, request, ctx)?;
        }
        let all_bytes = self.bundle_bytes();
        let bundle = self.bundles.get_mut(&m.bundle_id).ok_or(ErrorKind::BfcBadId)?;
        let bytes = held_bytes(&change, inner, bundle.mods.last().map(|(last, _)| last));
        let error = if bundle.closed {
            ErrorKind::BfcBundleClosed
        } else if bundle.flags != m.flags {
            ErrorKind::BfcBadFlags
        } else if all_bytes + bytes > MAX_BUNDLE_BYTES {
            ErrorKind::BfcMsgTooMany
        } else {
            bundle.bytes += bytes;
            bundle.mods.push((change, inner.into()));
            bundle.used_ms = request.now_ms;
            return Ok(());
        };
        self.bundles.remove(&m.bundle_id);
        Err(error)
    }

    /// Bytes held by its bundles.
    pub(super) fn bundle_bytes(&self) -> usize {
        self.bundles.values().map(|b| b.bytes).sum()
    }

    /// Begins a commit. No other transaction of the bridge is open.
    fn begin_commit(
        &mut self,
        bundle_id: u32,
        bundle: Bundle,
        request: &Request<'_>,
        shared: &mut Shared,
        ctx: &BridgeCtx<'_>,
    ) -> Result<(), ErrorKind> {
        let bytes = bundle.bytes;
        let transaction =
            Transaction::begin(ctx.backer, ctx.bridge, bundle.mods).ok_or(ErrorKind::BfcMsgFailed)?;
        let transaction = transaction.requested_by(self.id);
        shared.commit = Some(Commit {
            conn: self.id,
            bundle_id,
            xid: request.xid,
            frame: request.frame.into(),
            version: self.version(),
            transaction: Some(transaction),
            packets: VecDeque::new(),
        });
        (self.waits, self.commit_bytes) = (true, bytes);
        Ok(())
    }

    /// Removes idle bundles.
    pub(super) fn expire_bundles(&mut self, now_ms: u64) {
        let old: Vec<u32> =
            self.bundles.iter().filter(|(_, b)| now_ms >= b.expires_ms()).map(|(id, _)| *id).collect();
        for id in old {
            if let Some(bundle) = self.bundles.remove(&id) {
                self.refuse(ErrorKind::BfcTimeout, &bundle.opened_by);
            }
            self.count_kept();
        }
    }
}

/// Memory of a message of a bundle, behind `last`.
fn held_bytes(change: &Mod, message: &[u8], last: Option<&Mod>) -> usize {
    let (own, actions) = match change {
        Mod::Flow(fm) => (0, fm.actions.len()),
        Mod::Group(gm) => (0, gm.group.buckets.iter().map(|b| 1 + b.actions.len()).sum()),
        Mod::Packet(out) => {
            let changed = last.is_some_and(|last| !matches!(last, Mod::Packet(_)));
            let own = size_of::<PacketOut>() + size_of::<PacketOfTurn>() + out.data.len();
            (own + if changed { VERSION_BYTES } else { 0 }, out.actions.len())
        }
    };
    size_of::<Mod>() + own + actions * size_of::<Action>() + message.len()
}

impl Connmgr {
    /// Continues the commit, and replies at its end.
    pub(super) fn run_commit(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        let progress = self.step_commit(ctx, now_ms, work);
        if matches!(progress, Progress::More) {
            return;
        }
        let Some(commit) = self.shared.commit.take() else { return };
        let Some(conn) = self.conns.get_mut(&commit.conn) else { return };
        conn.end_wait(ctx);
        conn.commit_bytes = 0;
        conn.count_kept();
        if let Progress::Failed(kind, message) = progress {
            // First the error of the message, then that of the bundle.
            conn.refuse(kind, &message);
            conn.refuse(ErrorKind::BfcMsgFailed, &commit.frame);
            return;
        }
        // Its changes come before the reply.
        conn.report_changes(ctx, &mut self.shared.stamps, work);
        let reply =
            BundleControl { bundle_id: commit.bundle_id, ty: BundleControlType::CommitReply, flags: 0 };
        if let Err(kind) = conn.reply(&Message::BundleControl(reply), commit.xid) {
            conn.refuse(kind, &commit.frame);
        }
    }

    /// Continues with the changes, then with the packets.
    fn step_commit(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) -> Progress {
        let Some(commit) = &mut self.shared.commit else { return Progress::More };
        let meters = &self.shared.meters;
        let has_meter = |id| meters.has(id);
        let cx = ModContext {
            version: commit.version,
            now_ms,
            debug_actions: ctx.backer.debug_actions,
            has_meter: &has_meter,
            can: ctx.backer.features(),
        };
        if let Some(transaction) = &mut commit.transaction {
            let progress = transaction.step(ctx.backer, &cx, work);
            if !matches!(progress, Progress::Done) {
                return progress;
            }
            let (groups, flow_mods, packets) =
                commit.transaction.take().map(Transaction::into_done).unwrap_or_default();
            commit.packets = packets;
            let (from, groups) = (commit.conn, groups.into_iter().map(Forward::Group).collect::<Vec<_>>());
            if let Some(conn) = self.conns.get_mut(&from) {
                conn.mod_report.count(flow_mods, now_ms);
            }
            self.forward(&groups, from);
        }
        let Some(commit) = &mut self.shared.commit else { return Progress::More };
        let (id, mut packets) = (commit.conn, std::mem::take(&mut commit.packets));
        if let Some(conn) = self.conns.get_mut(&id) {
            while *work > 0
                && let Some(packet) = packets.pop_front()
            {
                *work -= 1;
                conn.bundled_packet_out(&packet, ctx, now_ms);
            }
        } else {
            packets.clear();
        }
        match &mut self.shared.commit {
            Some(commit) if !packets.is_empty() => {
                commit.packets = packets;
                Progress::More
            }
            _ => Progress::Done,
        }
    }

    /// Undoes the commit of a closed connection.
    pub(super) fn give_up_commit(&mut self, of: ConnId) {
        if let Some(commit) = self.shared.commit.as_mut().filter(|commit| commit.conn == of) {
            commit.packets.clear();
            if let Some(transaction) = &mut commit.transaction {
                transaction.give_up();
            }
        }
    }

    /// Completes an open commit, before all rules are flushed.
    pub(super) fn finish_commit(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        while self.shared.commit.is_some() {
            self.run_commit(ctx, now_ms, &mut usize::MAX.clone());
        }
    }
}
