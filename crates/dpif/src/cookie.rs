//! The cookie of a userspace action, in the layout of stock switches (48 bytes, OVS 2.12 to 3.x), so that their
//! tools show it.
//!
//! ```text
//!  0 u16 type   4 u32 OpenFlow input port   8 datapath bridge's UUID   24 by type:
//!    slow path:  28 u32 reasons
//!    sFlow:      24 be16 VLAN tag that it leaves with  28 u32 output
//!    flow:       24 u16 probability  28 u32 set  32 u32 domain  36 u32 point  40 u32 output port  44 u8 direction
//!                45 u24 bridge's number
//!    IPFIX:      24 u32 output port  45 u24 bridge's number
//!    controller: 24 u8 don't send  25 u8 continuation  26 u16 reason  28 u32 recirculation id  32 be64 rule cookie
//!                40 u16 controller id  42 u16 bytes at most
//! ```
//!
//! Numbers are in the machine's byte order except for the rule cookie and the VLAN tag. OVS has no number of a bridge: it
//! lies in bytes that its tools do not read.

use crate::slow_path::SlowReason;
use crate::upcall::{
    ControllerCookie, FlowDirection, FlowSampleCookie, IpfixCookie, SflowCookie, UserCookie,
};
use flow::{DpPort, OfPort, RecircId};

/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 48;

/// A cookie with its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CookieInfo {
    /// Data for the slow path.
    pub cookie: UserCookie,
    /// The packet's OpenFlow input port.
    pub in_port: OfPort,
    /// UUID of the bridge whose translation made it.
    pub bridge: [u8; 16],
}

/// Bytes that are not a cookie of this switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CookieError {
    /// Too short or too long.
    #[error("userdata has {0} bytes instead of 48")]
    Size(usize),
    /// A kind that this switch does not make.
    #[error("userdata of kind {0}")]
    Kind(u16),
    /// A field has a value not made by this switch.
    #[error("userdata with {0} {1}")]
    Value(&'static str, u32),
}

/// Kinds of cookies.
mod kind {
    pub(super) const SFLOW: u16 = 1;
    pub(super) const SLOW_PATH: u16 = 2;
    pub(super) const FLOW_SAMPLE: u16 = 3;
    pub(super) const IPFIX: u16 = 4;
    pub(super) const CONTROLLER: u16 = 5;
}

/// Most bridges whose number has a place; others are reported as those of bridge 0, which none has.
const BRIDGES_MAX: u32 = 0xff_ffff;

/// The bytes of a cookie.
pub fn write_cookie(info: &CookieInfo) -> [u8; COOKIE_BYTES] {
    let mut out = [0; COOKIE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(4, &info.in_port.0.to_ne_bytes());
    put(8, &info.bridge);
    let number = |bridge: u32| if bridge > BRIDGES_MAX { 0 } else { bridge };
    match info.cookie {
        UserCookie::Sflow(c) => {
            put(0, &kind::SFLOW.to_ne_bytes());
            put(24, &c.vlan_tci.to_be_bytes());
            put(28, &c.output.to_ne_bytes());
        }
        UserCookie::Ipfix(c) => {
            put(0, &kind::IPFIX.to_ne_bytes());
            put(24, &c.output_port.0.to_ne_bytes());
            put(45, &number(c.bridge).to_be_bytes()[1..]);
        }
        UserCookie::FlowSample(c) => {
            put(0, &kind::FLOW_SAMPLE.to_ne_bytes());
            put(24, &c.probability.to_ne_bytes());
            put(28, &c.collector_set.to_ne_bytes());
            put(32, &c.domain.to_ne_bytes());
            put(36, &c.point.to_ne_bytes());
            put(40, &c.output_port.0.to_ne_bytes());
            put(44, &[c.direction as u8]);
            put(45, &number(c.bridge).to_be_bytes()[1..]);
        }
        UserCookie::SlowPath { reasons } => {
            let bits = SlowReason::of(reasons).fold(0, |bits, reason| bits | reason.cookie_bit());
            put(0, &kind::SLOW_PATH.to_ne_bytes());
            put(28, &bits.to_ne_bytes());
        }
        UserCookie::Controller(c) => {
            put(0, &kind::CONTROLLER.to_ne_bytes());
            put(25, &[c.continuation.into()]);
            put(26, &u16::from(c.reason).to_ne_bytes());
            put(28, &c.recirc_id.0.to_ne_bytes());
            put(32, &c.rule_cookie.to_be_bytes());
            put(40, &c.controller_id.to_ne_bytes());
            put(42, &c.max_len_bytes.to_ne_bytes());
        }
    }
    out
}

/// Parses a cookie.
///
/// # Errors
/// Another size or kind, or values not made by this switch.
pub fn parse_cookie(bytes: &[u8]) -> Result<CookieInfo, CookieError> {
    let c: &[u8; COOKIE_BYTES] = bytes.try_into().map_err(|_| CookieError::Size(bytes.len()))?;
    let u16_at = |at: usize| u16::from_ne_bytes([c[at], c[at + 1]]);
    let u32_at = |at: usize| u32::from_ne_bytes([c[at], c[at + 1], c[at + 2], c[at + 3]]);
    let bridge_number = u32::from_be_bytes([0, c[45], c[46], c[47]]);
    let cookie = match u16_at(0) {
        kind::SFLOW => UserCookie::Sflow(SflowCookie {
            vlan_tci: u16::from_be_bytes([c[24], c[25]]),
            output: u32_at(28),
        }),
        kind::IPFIX => {
            let (output_port, bridge) = (DpPort(u32_at(24)), bridge_number);
            UserCookie::Ipfix(IpfixCookie { output_port, tunnel_out: false, bridge })
        }
        kind::FLOW_SAMPLE => UserCookie::FlowSample(FlowSampleCookie {
            probability: u16_at(24),
            collector_set: u32_at(28),
            domain: u32_at(32),
            point: u32_at(36),
            output_port: DpPort(u32_at(40)),
            tunnel_out: false,
            direction: match c[44] {
                0 => FlowDirection::ByPort,
                1 => FlowDirection::Ingress,
                2 => FlowDirection::Egress,
                other => return Err(CookieError::Value("direction", other.into())),
            },
            bridge: bridge_number,
        }),
        kind::SLOW_PATH => {
            let bits = u32_at(28);
            let (mut reasons, mut unknown) = (0, bits);
            for reason in SlowReason::all().filter(|reason| bits & reason.cookie_bit() != 0) {
                reasons |= reason.bit();
                unknown &= !reason.cookie_bit();
            }
            if unknown != 0 {
                return Err(CookieError::Value("slow path reasons", bits));
            }
            UserCookie::SlowPath { reasons }
        }
        kind::CONTROLLER => UserCookie::Controller(controller(c, u16_at(26), u32_at(28))?),
        other => return Err(CookieError::Kind(other)),
    };
    let mut bridge = [0; 16];
    bridge.copy_from_slice(&c[8..24]);
    Ok(CookieInfo { cookie, in_port: OfPort(u32_at(4)), bridge })
}

fn controller(c: &[u8; COOKIE_BYTES], reason: u16, recirc_id: u32) -> Result<ControllerCookie, CookieError> {
    for (at, what, max) in [(24, "dont_send", 0), (25, "continuation", 1)] {
        if c[at] > max {
            return Err(CookieError::Value(what, c[at].into()));
        }
    }
    let mut rule_cookie = [0; 8];
    rule_cookie.copy_from_slice(&c[32..40]);
    Ok(ControllerCookie {
        recirc_id: RecircId(recirc_id),
        rule_cookie: u64::from_be_bytes(rule_cookie),
        reason: u8::try_from(reason).map_err(|_| CookieError::Value("reason", reason.into()))?,
        controller_id: u16::from_ne_bytes([c[40], c[41]]),
        max_len_bytes: u16::from_ne_bytes([c[42], c[43]]),
        continuation: c[25] != 0,
    })
}

#[cfg(test)]
pub(crate) mod tests;
