//! `userspace`: sends the packet to the slow path, with a cookie ([`crate::cookie`]).

use super::prelude::*;
use crate::cookie::{CookieInfo, parse_cookie, write_cookie};
use crate::slow_path::SlowReason;
use crate::text::values::number;
use crate::text::write::hex;
use crate::upcall::{ControllerCookie, UserCookie};
use flow::{DpPort, RecircId};

mod samples;

/// Sends the packet to the slow path, with its cookie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Userspace(pub UserCookie);

/// `OVS_USERSPACE_ATTR_*`.
mod attr {
    pub(super) const PID: u16 = 1;
    pub(super) const USERDATA: u16 = 2;
    pub(super) const EGRESS_TUN_PORT: u16 = 3;
}

/// `OVS_ACTION_ATTR_USERSPACE`.
const ATTR: u16 = 2;

impl Action for Userspace {
    const WORDS: &'static [Word] = &[call("userspace")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::Delivers;
    const ENDS_LIST: bool = false;
    both_datapaths!();

    fn lists(&self) -> Lists<'_> {
        NO_LISTS
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn format(&self, names: &dyn PortNames) -> String {
        let tunnel =
            self.0.tunnel_out().map(|port| format!(",tunnel_out_port={}", samples::format_port(port, names)));
        format!("userspace(pid=0,{}{})", format_cookie(&self.0, names), tunnel.unwrap_or_default())
    }

    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<Userspace, TextError> {
        let (mut cookie, mut tunnel_out) = (None, None);
        for field in item.args()? {
            match field.name {
                "pid" => {
                    number(field.value()?, u32::MAX.into())?;
                }
                "slow_path" => cookie = Some(UserCookie::SlowPath { reasons: parse_reasons(field)? }),
                "sFlow" => cookie = Some(UserCookie::Sflow(samples::parse_sflow(field)?)),
                "ipfix" => cookie = Some(UserCookie::Ipfix(samples::parse_ipfix(field, parser)?)),
                "flow_sample" => cookie = Some(UserCookie::FlowSample(samples::parse_flow(field, parser)?)),
                // The slow path finds the actions of a sample by itself.
                "actions" => {}
                "tunnel_out_port" => tunnel_out = Some(samples::parse_port(field, parser)?),
                "controller" => cookie = Some(UserCookie::Controller(parse_controller(field)?)),
                _ => return Err(field.unknown(item.name)),
            }
        }
        let cookie = cookie.ok_or_else(|| {
            TextError(
                "userspace: slow_path(…), controller(…), sFlow(…), ipfix(…) or flow_sample(…) expected"
                    .into(),
            )
        })?;
        with_tunnel_out(cookie, tunnel_out)
            .ok_or_else(|| TextError("userspace: tunnel_out_port: not the output_port of a sample".into()))
    }

    fn write(&self, out: &mut AttrWriter, writer: &Writer<'_>) -> Result<(), ActionError> {
        let context = writer.context;
        let info = CookieInfo { cookie: self.0, in_port: context.in_port, bridge: context.bridge };
        out.nested(ATTR, |out| {
            out.u32(attr::PID, context.upcall_pid);
            out.put(attr::USERDATA, &write_cookie(&info));
            if let Some(port) = self.0.tunnel_out() {
                out.u32(attr::EGRESS_TUN_PORT, port.0);
            }
        });
        Ok(())
    }

    fn read(attr: &Attr<'_>, _reader: &Reader) -> Result<Userspace, ActionError> {
        let inner = attr.nested()?;
        let known = |a: Attr<'_>| matches!(a.kind, attr::PID | attr::USERDATA | attr::EGRESS_TUN_PORT);
        if !inner.into_iter().all(known) {
            return Err(ActionError::Foreign);
        }
        // The cookie does not include the destination socket.
        inner.require(attr::PID)?.u32()?;
        let userdata = inner.get(attr::USERDATA).map_or(&[][..], |a| a.content);
        let tunnel_out = inner.get(attr::EGRESS_TUN_PORT).map(|a| a.u32()).transpose()?.map(DpPort);
        let cookie = parse_cookie(userdata).map_err(|_| ActionError::Foreign)?.cookie;
        with_tunnel_out(cookie, tunnel_out).ok_or(ActionError::Foreign)
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.userspace(packets, &self.0)
    }
}

/// The action, with a report of the tunnel by which the sample leaves. `None`: the cookie has another output port, or none.
fn with_tunnel_out(cookie: UserCookie, tunnel_out: Option<DpPort>) -> Option<Userspace> {
    tunnel_out.map_or(Some(cookie), |port| cookie.with_tunnel_out(port)).map(Userspace)
}

fn format_cookie(cookie: &UserCookie, names: &dyn PortNames) -> String {
    match cookie {
        UserCookie::Sflow(c) => samples::format_sflow(c),
        UserCookie::Ipfix(c) => format!("ipfix(output_port={})", samples::format_port(c.output_port, names)),
        UserCookie::FlowSample(c) => samples::format_flow(c, names),
        UserCookie::SlowPath { reasons } => {
            let named: Vec<&str> = SlowReason::of(*reasons).map(SlowReason::name).collect();
            if named.is_empty() { "slow_path(0)".into() } else { format!("slow_path({})", named.join(",")) }
        }
        UserCookie::Controller(c) => format!(
            "controller(reason={},dont_send=0,continuation={},recirc_id={},rule_cookie={},controller_id={},max_len={})",
            c.reason,
            u8::from(c.continuation),
            c.recirc_id.0,
            hex(c.rule_cookie.into()),
            c.controller_id,
            c.max_len_bytes
        ),
    }
}

fn parse_reasons(item: &Item<'_>) -> Result<u16, TextError> {
    let mut reasons = 0;
    for name in item.args()?.iter().flat_map(|i| i.name.split('|')).filter(|n| *n != "0") {
        let known = SlowReason::all().find(|reason| reason.name() == name);
        reasons |= known.ok_or_else(|| TextError(format!("slow_path: no reason {name:?}")))?.bit();
    }
    Ok(reasons)
}

fn parse_controller(item: &Item<'_>) -> Result<ControllerCookie, TextError> {
    let mut c = ControllerCookie {
        recirc_id: RecircId(0),
        rule_cookie: 0,
        reason: 0,
        controller_id: 0,
        max_len_bytes: u16::MAX,
        continuation: false,
    };
    for field in item.args()? {
        let text = field.value()?;
        match field.name {
            "reason" => c.reason = number(text, 0xff)? as u8,
            "dont_send" => {
                number(text, 1)?;
            }
            "continuation" => c.continuation = number(text, 1)? != 0,
            "recirc_id" => c.recirc_id = RecircId(number(text, u32::MAX.into())? as u32),
            "rule_cookie" => c.rule_cookie = number(text, u64::MAX.into())? as u64,
            "controller_id" => c.controller_id = number(text, 0xffff)? as u16,
            "max_len" => c.max_len_bytes = number(text, 0xffff)? as u16,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(c)
}
