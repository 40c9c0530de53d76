//! `controller`: sends the packet to the controllers.

use super::output::put_output;
use super::prelude::*;
use crate::text::arguments::{dotted_hex, hex_bytes};
use flow::OfPort;
use flow::text::number::{u16_named, u32_argument};
use flow::text::token::Tokens;
use ofp_wire::prop;

/// Reason of a packet-in (`OFPR_*`, wire numbers of OpenFlow 1.3 §7.4.1 and later).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PacketInReason {
    /// No rule matched.
    NoMatch = 0,
    /// An output action.
    Action = 1,
    /// Invalid TTL.
    InvalidTtl = 2,
    /// An action set's output (OpenFlow 1.4).
    ActionSet = 3,
    /// A group's output (OpenFlow 1.4).
    Group = 4,
    /// A packet-out's output (OpenFlow 1.4).
    PacketOut = 5,
}

/// Reasons and their names, by wire number.
const REASONS: [(&str, PacketInReason); 6] = [
    ("no_match", PacketInReason::NoMatch),
    ("action", PacketInReason::Action),
    ("invalid_ttl", PacketInReason::InvalidTtl),
    ("action_set", PacketInReason::ActionSet),
    ("group", PacketInReason::Group),
    ("packet_out", PacketInReason::PacketOut),
];

impl PacketInReason {
    /// The reason of a wire number.
    pub fn from_wire(n: u8) -> Option<PacketInReason> {
        REASONS.get(usize::from(n)).map(|(_, reason)| *reason)
    }

    /// The name in text.
    pub fn name(self) -> &'static str {
        REASONS[self as usize].0
    }
}

/// Sends the packet to the controllers (`NXAST_CONTROLLER`, `NXAST_CONTROLLER2`, output to `CONTROLLER`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ControllerAction {
    /// Maximum bytes of the packet (65535: all).
    pub max_len_bytes: u16,
    /// Controller id.
    pub controller_id: u16,
    /// Reason in the packet-in.
    pub reason: PacketInReason,
    /// Userdata in the packet-in (Nicira format 2).
    pub userdata: Vec<u8>,
    /// Freeze the translation, for resumption by the controller.
    pub pause: bool,
    /// Rate-limiting meter.
    pub meter_id: Option<u32>,
}

impl ControllerAction {
    /// The equivalent of an output to `CONTROLLER`.
    pub fn plain(max_len_bytes: u16) -> ControllerAction {
        ControllerAction {
            max_len_bytes,
            controller_id: 0,
            reason: PacketInReason::Action,
            userdata: Vec::new(),
            pause: false,
            meter_id: None,
        }
    }

    /// Whether it is equivalent to an output to `CONTROLLER`.
    pub fn is_plain(&self) -> bool {
        *self == ControllerAction::plain(self.max_len_bytes)
    }

    fn put2(&self, w: &mut Writer) {
        w.zeros(6);
        if self.max_len_bytes != u16::MAX {
            prop::put_u16(w, 0, self.max_len_bytes);
        }
        if self.controller_id != 0 {
            prop::put_u16(w, 1, self.controller_id);
        }
        if self.reason != PacketInReason::Action {
            prop::put(w, 2, |w| w.u8(self.reason as u8));
        }
        if !self.userdata.is_empty() {
            prop::put(w, 3, |w| w.bytes(&self.userdata));
        }
        if self.pause {
            prop::put(w, 4, |_| {});
        }
        if let Some(id) = self.meter_id {
            prop::put(w, 5, |w| w.u32(id));
        }
    }
}

fn reason(n: u8) -> Res<PacketInReason> {
    PacketInReason::from_wire(n).ok_or(ErrorKind::NxbrcBadReason)
}

fn read(r: &mut Reader<'_>) -> Res<Action> {
    let mut c = ControllerAction::plain(r.u16()?);
    c.controller_id = r.u16()?;
    c.reason = reason(r.u8()?)?;
    r.zeros(ErrorKind::NxbacMustBeZero)?;
    Ok(Box::new(c).into())
}

fn read2(r: &mut Reader<'_>) -> Res<Action> {
    r.sub(6)?.zeros(ErrorKind::NxbacMustBeZero)?;
    let mut c = ControllerAction::plain(u16::MAX);
    while !r.is_empty() {
        let (ty, mut p) = prop::read(r)?;
        match ty {
            0 => c.max_len_bytes = prop::small_u16(&mut p)?,
            1 => c.controller_id = prop::small_u16(&mut p)?,
            2 => c.reason = reason(prop::small_u8(&mut p)?)?,
            3 => c.userdata = p.rest().to_vec(),
            4 => c.pause = true,
            5 => c.meter_id = Some(p.u32()?).filter(|id| *id != 0),
            _ => return Err(ErrorKind::BpcBadType),
        }
        if !p.is_empty() {
            return Err(ErrorKind::BpcBadLen);
        }
    }
    Ok(Box::new(c).into())
}

fn parse(arg: &str) -> Parsed<ControllerAction> {
    let mut c = ControllerAction::plain(u16::MAX);
    if arg.bytes().next().is_some_and(|b| b.is_ascii_digit()) {
        c.max_len_bytes = u16_named(arg, "max_len")?;
        return Ok(c);
    }
    let mut tokens = Tokens::new(arg);
    while let Some(token) = tokens.next_token()? {
        let value = token.value;
        match token.key {
            "max_len" => c.max_len_bytes = u16_named(value, "max_len")?,
            "id" => c.controller_id = u16_named(value, "id")?,
            "reason" => match REASONS.iter().find(|(name, _)| *name == value) {
                Some((_, reason)) => c.reason = *reason,
                None => return fail(value, format!("unknown reason \"{value}\"")),
            },
            "userdata" => match hex_bytes(value) {
                Some(bytes) => c.userdata = bytes,
                None => return fail(value, "bad hex digit in `controller' action `userdata'"),
            },
            "pause" => c.pause = true,
            "meter_id" => c.meter_id = Some(u32_argument(value)?).filter(|id| *id != 0),
            key => return fail(token.key, format!("unknown key \"{key}\" parsing controller action")),
        }
    }
    Ok(c)
}

impl OfAction for Box<ControllerAction> {
    const NAMES: &'static [&'static str] = &["controller"];
    const ROWS: &'static [Row] = &[nx(20, Len::Is(16), read), nx(37, Len::Min(16), read2)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if self.is_plain() {
            put_output(w, OfPort::CONTROLLER, self.max_len_bytes);
        } else if self.userdata.is_empty() && !self.pause && self.meter_id.is_none() {
            nicira(w, 20, |w| {
                w.u16(self.max_len_bytes);
                w.u16(self.controller_id);
                w.u8(self.reason as u8);
                w.u8(0);
            });
        } else {
            nicira(w, 37, |w| self.put2(w));
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(Box::new(parse(text.value())?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        if self.is_plain() {
            return format!("CONTROLLER:{}", self.max_len_bytes);
        }
        let mut parts = Vec::new();
        if self.reason != PacketInReason::Action {
            parts.push(format!("reason={}", self.reason.name()));
        }
        if self.max_len_bytes != u16::MAX {
            parts.push(format!("max_len={}", self.max_len_bytes));
        }
        if self.controller_id != 0 {
            parts.push(format!("id={}", self.controller_id));
        }
        if !self.userdata.is_empty() {
            parts.push(format!("userdata={}", dotted_hex(&self.userdata)));
        }
        if self.pause {
            parts.push("pause".into());
        }
        if let Some(meter) = self.meter_id {
            parts.push(format!("meter_id={meter}"));
        }
        format!("controller({})", parts.join(","))
    }

    /// An unknown meter limits nothing, as in OVS.
    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        if self.is_plain() { SetPlace::WayOut(110) } else { SetPlace::Never }
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        visit(Reference::Output(OfPort::CONTROLLER));
        visit(Reference::OwnCookie);
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        if self.is_plain() {
            x.output(OfPort::CONTROLLER, self.max_len_bytes);
        } else {
            x.output_controller(self);
        }
    }
}
