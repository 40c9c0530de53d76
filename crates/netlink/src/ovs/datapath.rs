//! Family `ovs_datapath`.

use super::{Ovs, SMALL_REPLY_BYTES, begin, check_name, u64s};
use crate::error::Error;
use crate::message::flag;
use crate::socket::{Asked, MessageWriter};
use flow::nlattr::{AttrError, Attrs};

/// `OVS_DP_F_*`: features requested for a datapath.
pub mod features {
    /// The last attribute may be unaligned.
    pub const UNALIGNED: u32 = 1;
    /// A port has several upcall sockets.
    pub const VPORT_PIDS: u32 = 2;
    /// Recirculation ids are shared with traffic control.
    pub const TC_RECIRC_SHARING: u32 = 4;
    /// Upcalls use a socket per processor rather than per port ([`DpSet::per_cpu_pids`](super::DpSet)) (Linux 5.15).
    pub const DISPATCH_UPCALL_PER_CPU: u32 = 8;
}

/// A datapath, in requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DpName<'a> {
    /// By the interface index of its local port.
    Ifindex(u32),
    /// By its name, which is that of its local port.
    Name(&'a str),
}

/// A datapath to create.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DpNew {
    /// Name of the datapath and of its local port: an interface that must not exist yet, 1 to 15 bytes.
    pub name: String,
    /// Socket for the local port's upcalls, 0 for none.
    pub upcall_pid: u32,
    /// Bits of [`features`].
    pub user_features: u32,
    /// Size of the kernel's mask cache: a power of two, or 0 for no cache. `None`: its default (256).
    pub masks_cache_size: Option<u32>,
    /// Sockets for upcalls by processor; needs the feature.
    pub per_cpu_pids: Option<Vec<u32>>,
}

/// Changes of a datapath.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DpSet {
    /// Bits of [`features`], complete: missing ones are disabled. `None`: unchanged.
    pub user_features: Option<u32>,
    /// See [`DpNew`].
    pub masks_cache_size: Option<u32>,
    /// Sockets for upcalls by processor: number `n` for processor `n`, and modulo their number beyond.
    pub per_cpu_pids: Option<Vec<u32>>,
}

/// Counters of a datapath (`struct ovs_dp_stats`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DpStats {
    /// Packets that matched a flow.
    pub hit: u64,
    /// Packets without a matching flow.
    pub missed: u64,
    /// Misses lost before userspace.
    pub lost: u64,
    /// Current flows.
    pub flows: u64,
}

/// Counters of its masks (`struct ovs_dp_megaflow_stats`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DpMegaflowStats {
    /// Masks visited for all packets.
    pub mask_hit: u64,
    /// Current masks.
    pub masks: u32,
    /// Packets whose mask was found in the cache.
    pub cache_hit: u64,
}

/// A datapath of the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DpInfo {
    /// Interface index of its local port.
    pub dp_ifindex: u32,
    /// Its name.
    pub name: String,
    /// Enabled bits of [`features`].
    pub user_features: u32,
    /// Counters.
    pub stats: DpStats,
    /// Counters of masks.
    pub megaflow_stats: DpMegaflowStats,
    /// Size of its mask cache; `None` if the kernel does not report it.
    pub masks_cache_size: Option<u32>,
}

/// `OVS_DP_CMD_*`.
mod command {
    pub(super) const NEW: u8 = 1;
    pub(super) const DEL: u8 = 2;
    pub(super) const GET: u8 = 3;
    pub(super) const SET: u8 = 4;
}

/// `OVS_DP_ATTR_*`.
mod attr {
    pub(super) const NAME: u16 = 1;
    pub(super) const UPCALL_PID: u16 = 2;
    pub(super) const STATS: u16 = 3;
    pub(super) const MEGAFLOW_STATS: u16 = 4;
    pub(super) const USER_FEATURES: u16 = 5;
    pub(super) const MASKS_CACHE_SIZE: u16 = 7;
    pub(super) const PER_CPU_PIDS: u16 = 8;
}

/// Names of `OVS_DP_ATTR_*`, by number.
const ATTRIBUTES: &[&str] = &[
    "OVS_DP_ATTR_UNSPEC",
    "OVS_DP_ATTR_NAME",
    "OVS_DP_ATTR_UPCALL_PID",
    "OVS_DP_ATTR_STATS",
    "OVS_DP_ATTR_MEGAFLOW_STATS",
    "OVS_DP_ATTR_USER_FEATURES",
    "OVS_DP_ATTR_PAD",
    "OVS_DP_ATTR_MASKS_CACHE_SIZE",
    "OVS_DP_ATTR_PER_CPU_PIDS",
    "OVS_DP_ATTR_IFINDEX",
];

impl DpInfo {
    /// Reads a datapath from the kernel.
    pub(crate) fn parse(dp_ifindex: u32, attrs: Attrs<'_>) -> Result<DpInfo, AttrError> {
        let mut info = DpInfo { dp_ifindex, ..DpInfo::default() };
        for a in attrs {
            match a.kind {
                attr::NAME => info.name = a.text()?.to_owned(),
                attr::USER_FEATURES => info.user_features = a.u32()?,
                attr::MASKS_CACHE_SIZE => info.masks_cache_size = Some(a.u32()?),
                attr::STATS => {
                    let [hit, missed, lost, flows] = u64s(a.content, a.kind)?;
                    info.stats = DpStats { hit, missed, lost, flows };
                }
                attr::MEGAFLOW_STATS => {
                    let [mask_hit, masks, cache_hit] = u64s(a.content, a.kind)?;
                    // Two 32-bit numbers are in the middle.
                    let [a, b, c, d, ..] = masks.to_ne_bytes();
                    let masks = u32::from_ne_bytes([a, b, c, d]);
                    info.megaflow_stats = DpMegaflowStats { mask_hit, masks, cache_hit };
                }
                _ => {}
            }
        }
        Ok(info)
    }
}

impl DpName<'_> {
    /// The request with the name.
    fn asked(&self, verb: &str) -> String {
        match self {
            DpName::Ifindex(n) => format!("{verb} the datapath of interface {n}"),
            DpName::Name(name) => format!("{verb} datapath {name}"),
        }
    }
}

impl Ovs {
    /// Creates a datapath with its local port (number 0).
    ///
    /// # Errors
    /// [`Error::is_exists`] if the interface exists; an unsupported feature.
    pub fn dp_new(&self, new: &DpNew) -> Result<DpInfo, Error> {
        let what = format!("make datapath {}", new.name);
        check_name(&what, &new.name)?;
        let asked = Asked { reply_bytes: SMALL_REPLY_BYTES, ..Asked::once(what, ATTRIBUTES) };
        let mut request = begin(&self.families.datapath, command::NEW, flag::ECHO, 0, asked);
        request.attrs.text(attr::NAME, &new.name);
        request.attrs.u32(attr::UPCALL_PID, new.upcall_pid);
        request.attrs.u32(attr::USER_FEATURES, new.user_features);
        if let Some(size) = new.masks_cache_size {
            request.attrs.u32(attr::MASKS_CACHE_SIZE, size);
        }
        if let Some(pids) = &new.per_cpu_pids {
            request.attrs.u32s(attr::PER_CPU_PIDS, pids);
        }
        self.ask_for(request.finish()?, DpInfo::parse)
    }

    /// Changes a datapath.
    ///
    /// # Errors
    /// [`Error::is_no_device`] if it does not exist; an unsupported feature.
    pub fn dp_set(&self, dp: DpName<'_>, change: &DpSet) -> Result<DpInfo, Error> {
        let mut request = self.about_dp(dp, command::SET, "change")?;
        if let Some(features) = change.user_features {
            request.attrs.u32(attr::USER_FEATURES, features);
        }
        if let Some(size) = change.masks_cache_size {
            request.attrs.u32(attr::MASKS_CACHE_SIZE, size);
        }
        if let Some(pids) = &change.per_cpu_pids {
            request.attrs.u32s(attr::PER_CPU_PIDS, pids);
        }
        self.ask_for(request.finish()?, DpInfo::parse)
    }

    /// A datapath with its counters.
    ///
    /// # Errors
    /// [`Error::is_no_device`] if it does not exist.
    pub fn dp_get(&self, dp: DpName<'_>) -> Result<DpInfo, Error> {
        self.ask_for(self.about_dp(dp, command::GET, "read")?.finish()?, DpInfo::parse)
    }

    /// Removes a datapath with its ports and flows.
    ///
    /// # Errors
    /// [`Error::is_no_device`] if it does not exist.
    pub fn dp_del(&self, dp: DpName<'_>) -> Result<(), Error> {
        self.ask(self.about_dp(dp, command::DEL, "remove")?.finish()?, DpInfo::parse).map(drop)
    }

    /// All datapaths of the namespace.
    ///
    /// # Errors
    /// The kernel does not reply.
    pub fn dp_dump(&self) -> Result<Vec<DpInfo>, Error> {
        let asked = Asked::again("list datapaths", ATTRIBUTES, 0);
        let request = begin(&self.families.datapath, command::GET, 0, 0, asked).finish()?;
        self.dump(&request, DpInfo::parse)
    }

    /// Begins a request about an existing datapath.
    fn about_dp(&self, dp: DpName<'_>, command: u8, verb: &str) -> Result<MessageWriter, Error> {
        let what = dp.asked(verb);
        let (ifindex, name) = match dp {
            DpName::Ifindex(n) => (n, None),
            DpName::Name(name) => (0, Some(name)),
        };
        if let Some(name) = name {
            check_name(&what, name)?;
        }
        let asked = Asked::again(what, ATTRIBUTES, SMALL_REPLY_BYTES);
        // Changes and removals return the datapath only on request.
        let asked = Asked { repeatable: command != command::DEL, ..asked };
        let flags = if command == command::GET { 0 } else { flag::ECHO };
        let mut request = begin(&self.families.datapath, command, flags, ifindex, asked);
        if let Some(name) = name {
            request.attrs.text(attr::NAME, name);
        }
        Ok(request)
    }
}
