//! Bundles: messages kept until they are carried out together (OpenFlow 1.4 §6.8, §7.3.9; ONF EXT-230 for 1.3).
//!
//! A bundle keeps the messages as bytes, checked when they came. All are flow-mods, so every bundle is atomic and ordered,
//! whatever its flags ask. Bounds: [`MAX_BUNDLES`], [`MAX_BUNDLE_BYTES`], [`IDLE_MS`]; what bundles keep counts as input that is not
//! carried out, of which all connections have a bound.

use super::conn::Conn;
use super::requests::Request;
use super::{BridgeCtx, Shared};
use crate::flow_mod::{self, ModContext};
use openflow::msg::control::{BundleAdd, BundleControl, BundleControlType};
use openflow::{ErrorKind, HEADER_BYTES, Message, OfError, decode};

/// How many bundles a connection may have at a time.
pub(super) const MAX_BUNDLES: usize = 64;
/// How many bytes the messages of a connection's bundles may have together.
pub(super) const MAX_BUNDLE_BYTES: usize = 256 << 20;
/// A bundle ends when nothing is added to it for so long.
pub(super) const IDLE_MS: u64 = 10_000;
/// Where the inner message stands in `ONFT_BUNDLE_ADD_MESSAGE`.
const INNER_AT: usize = HEADER_BYTES + 16;

pub(super) struct Bundle {
    flags: u16,
    closed: bool,
    messages: Vec<Box<[u8]>>,
    bytes: usize,
    used_ms: u64,
    /// Beginning of the message that opened it, for an error about it.
    opened_by: Box<[u8]>,
}

impl Bundle {
    fn new(flags: u16, request: &Request<'_>) -> Bundle {
        let head = &request.frame[..request.frame.len().min(64)];
        Bundle {
            flags,
            closed: false,
            messages: Vec::new(),
            bytes: 0,
            used_ms: request.now_ms,
            opened_by: head.into(),
        }
    }

    pub(super) fn expires_ms(&self) -> u64 {
        self.used_ms + IDLE_MS
    }
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
                self.open_bundle(m.bundle_id, m.flags, request)?;
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
                self.commit(&bundle, shared, ctx, request.now_ms)?;
                BundleControlType::CommitReply
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
        let told = BundleControl { bundle_id: m.bundle_id, ty: reply, flags: 0 };
        self.reply(&Message::BundleControl(told), request.xid)
    }

    fn open_bundle(&mut self, id: u32, flags: u16, request: &Request<'_>) -> Result<(), ErrorKind> {
        if self.bundles.remove(&id).is_some() {
            return Err(ErrorKind::BfcBadId);
        }
        if self.bundles.len() >= MAX_BUNDLES {
            return Err(ErrorKind::BfcOutOfBundles);
        }
        self.bundles.insert(id, Bundle::new(flags, request));
        Ok(())
    }

    /// Adds a message; to a bundle that is not there, opens it.
    pub(super) fn bundle_add(&mut self, m: &BundleAdd, request: &Request<'_>) -> Result<(), ErrorKind> {
        if !matches!(*m.message, Message::FlowMod(_)) {
            return Err(ErrorKind::BfcMsgUnsup);
        }
        let inner = request.frame.get(INNER_AT..).ok_or(ErrorKind::BfcMsgBadLen)?;
        let len = inner.get(2..4).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
        let inner = inner.get(..len).ok_or(ErrorKind::BfcMsgBadLen)?;
        if !self.bundles.contains_key(&m.bundle_id) {
            self.open_bundle(m.bundle_id, m.flags, request)?;
        }
        let all_bytes = self.bundle_bytes();
        let bundle = self.bundles.get_mut(&m.bundle_id).ok_or(ErrorKind::BfcBadId)?;
        let error = if bundle.closed {
            ErrorKind::BfcBundleClosed
        } else if bundle.flags != m.flags {
            ErrorKind::BfcBadFlags
        } else if all_bytes + inner.len() > MAX_BUNDLE_BYTES {
            ErrorKind::BfcMsgTooMany
        } else {
            bundle.messages.push(inner.into());
            bundle.bytes += inner.len();
            bundle.used_ms = request.now_ms;
            return Ok(());
        };
        self.bundles.remove(&m.bundle_id);
        Err(error)
    }

    /// What its bundles keep.
    pub(super) fn bundle_bytes(&self) -> usize {
        self.bundles.values().map(|b| b.bytes).sum()
    }

    fn commit(
        &mut self,
        bundle: &Bundle,
        shared: &Shared,
        ctx: &BridgeCtx<'_>,
        now_ms: u64,
    ) -> Result<(), ErrorKind> {
        self.spent += bundle.messages.len();
        let mut mods = Vec::with_capacity(bundle.messages.len());
        for bytes in &bundle.messages {
            match decode(bytes) {
                Ok((_, _, Message::FlowMod(fm))) => mods.push(fm),
                Ok(_) => return Err(ErrorKind::BfcMsgUnsup),
                Err(OfError { kind, .. }) => {
                    self.refuse(kind, bytes);
                    return Err(ErrorKind::BfcMsgFailed);
                }
            }
        }
        let has_meter = |id| shared.meters.has(id);
        let cx = ModContext {
            version: self.version(),
            now_ms,
            debug_actions: ctx.backer.debug_actions,
            has_meter: &has_meter,
        };
        flow_mod::apply_all(ctx.backer, ctx.bridge, &mods, &cx).map_err(|(i, kind)| {
            // First what is wrong with the message, then that the bundle failed for it.
            if let Some(bytes) = bundle.messages.get(i) {
                self.refuse(kind, bytes);
            }
            ErrorKind::BfcMsgFailed
        })
    }

    /// Ends bundles that nothing was added to for too long.
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
