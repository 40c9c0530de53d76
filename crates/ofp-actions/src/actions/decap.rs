//! `decap`: pops the first header of the packet.

use super::prelude::*;
use flow::text::number::u16_named;
use flow::text::token::Tokens;

/// Pops the first header of the packet (`NXAST_DECAP`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Decap {
    /// Packet type afterwards, as in a [`flow::Flow`]; `None`: as the header tells.
    pub packet_type: Option<u32>,
}

/// `NXAST_DECAP`.
const NXAST: u16 = 47;
/// The packet type of the header's own next protocol (`OFPHTT_USE_NEXT_PROTO`).
const USE_NEXT_PROTO: u32 = 0xfffe;
/// A packet type of packets of which nothing is known: of the namespace of experimenters.
const UNKNOWN: u32 = 0xffff_ffff;

fn read(r: &mut Reader<'_>) -> Res<Action> {
    r.skip(2)?;
    let packet_type = r.u32()?;
    Ok(Decap { packet_type: (packet_type != USE_NEXT_PROTO).then_some(packet_type) }.into())
}

/// `ns=NAMESPACE,type=TYPE`.
fn packet_type(text: &str) -> Parsed<u32> {
    let (mut namespace, mut kind) = (None, None);
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next_token()? {
        match token.key {
            "ns" => namespace = Some(u16_named(token.value, "ns")?),
            "type" => kind = Some(u16_named(token.value, "type")?),
            key => return fail(key, format!("Unknown packet_type attribute {key}")),
        }
    }
    match (namespace, kind) {
        (None, _) => fail(text, "Missing packet_type attribute ns"),
        (Some(namespace), _) if namespace > 1 => fail(text, format!("Unsupported ns value: {namespace}")),
        (Some(_), None) => fail(text, "Missing packet_type attribute type"),
        (Some(namespace), Some(kind)) => Ok(u32::from(namespace) << 16 | u32::from(kind)),
    }
}

impl OfAction for Decap {
    const NAMES: &'static [&'static str] = &["decap"];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Is(16), read).within(Version::V13, Version::V15)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = false;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, NXAST, |w| {
            w.zeros(2);
            w.u32(self.packet_type.unwrap_or(USE_NEXT_PROTO));
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let mut tokens = Tokens::new(text.value());
        let mut decap = Decap { packet_type: None };
        while let Some(token) = tokens.next_token()? {
            match token.key {
                "packet_type" => {
                    let packet_type = packet_type(token.value)?;
                    decap.packet_type = (packet_type != USE_NEXT_PROTO).then_some(packet_type);
                }
                key => return fail(key, format!("Invalid decap argument: {key}")),
            }
        }
        out.push(decap.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        match self.packet_type.map(|packet_type| (packet_type >> 16, packet_type & 0xffff)) {
            None => "decap()".into(),
            Some((namespace, 0)) => format!("decap(packet_type(ns={namespace},type=0))"),
            Some((namespace, kind)) => format!("decap(packet_type(ns={namespace},type={kind:#x}))"),
        }
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        lose_header(&mut checker.flow);
        Ok(())
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        // The type of a frame is matched before it becomes the packet type.
        let is_known = checker.flow.packet_type != 0 || checker.mask.dl_type == u16::MAX;
        lose_header(&mut checker.flow);
        if !is_known {
            checker.flow.packet_type = UNKNOWN;
        }
        checker.mask.packet_type = u32::MAX;
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Before(22)
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.decap(self.packet_type);
    }
}

/// The headers of a frame behind its Ethernet header are known; others only after the recirculation.
fn lose_header(flow: &mut flow::Flow) {
    if flow.packet_type == 0 {
        flow.packet_type = 1 << 16 | u32::from(flow.dl_type);
    } else {
        (flow.packet_type, flow.dl_type) = (UNKNOWN, u16::MAX);
    }
}
