//! Family `ovs_ct_limit`: connection limits of zones.

use super::{Ovs, begin};
use crate::error::Error;
use crate::socket::{Asked, NlRequest};
use dpif::{CtLimit, CtZone};
use flow::nlattr::{AttrError, Attrs};

/// `OVS_CT_LIMIT_CMD_*`.
mod command {
    pub(super) const SET: u8 = 1;
    pub(super) const DEL: u8 = 2;
    pub(super) const GET: u8 = 3;
}

/// `OVS_CT_LIMIT_ATTR_ZONE_LIMIT`: structures of zone, limit and count, one behind the other.
const ZONE_LIMIT: u16 = 1;
/// The number for all zones without a limit (`OVS_ZONE_LIMIT_DEFAULT_ZONE`).
const DEFAULT_ZONE: i32 = -1;
/// Bytes of the structure.
const ZONE_LIMIT_BYTES: usize = 12;
/// At most one for each of 65536 zones, bounded by the size of an attribute.
const REPLY_BYTES: usize = 64 << 10;

const ATTRIBUTES: &[&str] = &["OVS_CT_LIMIT_ATTR_UNSPEC", "OVS_CT_LIMIT_ATTR_ZONE_LIMIT"];

fn number(zone: CtZone) -> i32 {
    match zone {
        CtZone::Default => DEFAULT_ZONE,
        CtZone::Zone(zone) => zone.into(),
    }
}

/// The structures, one behind the other.
fn write_limits(limits: impl Iterator<Item = (CtZone, u32)>) -> Vec<u8> {
    limits
        .flat_map(|(zone, limit)| [number(zone).to_ne_bytes(), limit.to_ne_bytes(), [0; 4]])
        .flatten()
        .collect()
}

/// Reads the limits of a reply.
pub(crate) fn parse_limits(_dp_ifindex: u32, attrs: Attrs<'_>) -> Result<Vec<CtLimit>, AttrError> {
    let Some(a) = attrs.get(ZONE_LIMIT) else { return Ok(Vec::new()) };
    let (structures, rest) = a.content.as_chunks::<ZONE_LIMIT_BYTES>();
    if !rest.is_empty() {
        return Err(AttrError::Size { kind: ZONE_LIMIT, has_bytes: a.content.len() });
    }
    let limit = |s: &[u8; ZONE_LIMIT_BYTES]| {
        let [zone, limit, count] = [0, 4, 8].map(|at| [s[at], s[at + 1], s[at + 2], s[at + 3]]);
        let zone = match i32::from_ne_bytes(zone) {
            DEFAULT_ZONE => CtZone::Default,
            n => CtZone::Zone(u16::try_from(n).map_err(|_| AttrError::Value(ZONE_LIMIT))?),
        };
        Ok(CtLimit { zone, limit: u32::from_ne_bytes(limit), count: u32::from_ne_bytes(count) })
    };
    structures.iter().map(limit).collect()
}

impl Ovs {
    /// Sets limits.
    ///
    /// # Errors
    /// [`Error::is_no_device`] if there is no such datapath; [`Error::NoModule`] if the kernel has no limits.
    pub fn ct_limit_set(&self, dp_ifindex: u32, limits: &[(CtZone, u32)]) -> Result<(), Error> {
        let content = write_limits(limits.iter().copied());
        let request =
            self.about_limits(dp_ifindex, command::SET, "set limits of connections", Some(&content))?;
        self.ask(request, parse_limits).map(drop)
    }

    /// The limits of these zones; without zones: all that exist, the default first.
    ///
    /// # Errors
    /// As above.
    pub fn ct_limit_get(&self, dp_ifindex: u32, zones: &[CtZone]) -> Result<Vec<CtLimit>, Error> {
        let content = (!zones.is_empty()).then(|| write_limits(zones.iter().map(|zone| (*zone, 0))));
        let what = "read limits of connections";
        let request = self.about_limits(dp_ifindex, command::GET, what, content.as_deref())?;
        self.ask_for(request, parse_limits)
    }

    /// Removes limits.
    ///
    /// # Errors
    /// As above.
    pub fn ct_limit_del(&self, dp_ifindex: u32, zones: &[CtZone]) -> Result<(), Error> {
        let content = write_limits(zones.iter().map(|zone| (*zone, 0)));
        let what = "take limits of connections away";
        let request = self.about_limits(dp_ifindex, command::DEL, what, Some(&content))?;
        self.ask(request, parse_limits).map(drop)
    }

    fn about_limits(
        &self,
        dp_ifindex: u32,
        command: u8,
        what: &'static str,
        content: Option<&[u8]>,
    ) -> Result<NlRequest, Error> {
        let no_family = || Error::NoModule { family: "ovs_ct_limit".into() };
        let family = self.families.ct_limit.as_ref().ok_or_else(no_family)?;
        let asked = Asked::again(what, ATTRIBUTES, REPLY_BYTES);
        let mut request = begin(family, command, 0, dp_ifindex, asked);
        if let Some(content) = content {
            request.attrs.put(ZONE_LIMIT, content);
        }
        request.finish()
    }
}
