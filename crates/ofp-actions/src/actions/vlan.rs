//! `mod_vlan_vid`, `mod_vlan_pcp`, `strip_vlan`, `push_vlan`: the tags of a packet.

use super::prelude::*;
use crate::put::put_set;
use crate::rows::limited;
use crate::text::arguments::bounded_u16;
use flow::VlanTag;
use flow::fields::FieldId;
use flow::text::number::u16_named;
use packet::headers::{ETH_TYPE_VLAN, ETH_TYPE_VLAN_8021AD};

/// Sets the VLAN (`OFPAT_SET_VLAN_VID`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetVlanVid {
    /// VLAN.
    pub vid: u16,
    /// Pushes a tag if there is none, as in OpenFlow 1.0; OpenFlow 1.1 requires a tag.
    pub push: bool,
}

/// Sets the priority (`OFPAT_SET_VLAN_PCP`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetVlanPcp {
    /// Priority.
    pub pcp: u8,
    /// As in [`SetVlanVid`].
    pub push: bool,
}

/// Removes the outermost tag, if any (`OFPAT_STRIP_VLAN`, `OFPAT_POP_VLAN`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StripVlan {
    /// Named `pop_vlan`, as since OpenFlow 1.1, instead of `strip_vlan`.
    pub pop: bool,
}

/// Pushes a tag with this EtherType (`OFPAT_PUSH_VLAN`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PushVlan(pub u16);

/// A whole tag, as a mask.
const WHOLE: VlanTag = VlanTag { tpid: u16::MAX, tci: u16::MAX };

fn is_tpid(tpid: u16) -> bool {
    tpid == ETH_TYPE_VLAN || tpid == ETH_TYPE_VLAN_8021AD
}

fn read_push(r: &mut Reader<'_>) -> Res<Action> {
    let tpid = r.u16()?;
    if is_tpid(tpid) { Ok(PushVlan(tpid).into()) } else { Err(ErrorKind::BacBadArgument) }
}

fn read_vid(r: &mut Reader<'_>, push: bool) -> Res<Action> {
    Ok(SetVlanVid { vid: limited(r.u16()?, 0xfff)?, push }.into())
}

fn read_pcp(r: &mut Reader<'_>, push: bool) -> Res<Action> {
    Ok(SetVlanPcp { pcp: limited(r.u8()?.into(), 7)? as u8, push }.into())
}

/// Checks a setter; from here on the packet has a tag.
fn check_set(checker: &mut Checker<'_>, push: bool) -> Res<()> {
    checker.fits(push || checker.flow.vlans[0].is_present())?;
    tag_in_check(checker);
    Ok(())
}

/// From here on the packet has a tag.
fn tag_in_check(checker: &mut Checker<'_>) {
    checker.flow.vlans[0].tci |= VlanTag::PRESENT;
}

/// From here on the packet has a tag, in the check of `ovs-ofctl`.
fn tag_in_text(checker: &mut TextChecker) {
    checker.flow.vlans[0].tci |= VlanTag::PRESENT;
    checker.mask.vlans[0].tci |= VlanTag::PRESENT;
}

/// Sets bits of the outermost tag, pushing one if there is none.
fn set_bits(x: &mut impl Translator, value: u16, bits: u16) {
    let (flow, wc) = x.state();
    if flow.packet_type != 0 {
        return x.warning(|| "the packet has no Ethernet header, so no VLAN tag".to_string());
    }
    wc.0.vlans[0].tci |= bits | VlanTag::PRESENT;
    let tag = &mut flow.vlans[0];
    if !tag.is_present() {
        *tag = VlanTag { tpid: ETH_TYPE_VLAN, tci: VlanTag::PRESENT };
    }
    tag.tci = tag.tci & !bits | value & bits;
}

impl OfAction for SetVlanVid {
    const NAMES: &'static [&'static str] = &["mod_vlan_vid", "set_vlan_vid"];
    const ROWS: &'static [Row] = &[of10(1, 8, |r| read_vid(r, true)), setter11(1, 8, |r| read_vid(r, false))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        if self.push && w.version > Version::V10 {
            cx.push_tag_if_none(w);
        }
        if w.version < Version::V12 {
            standard(w, 1, |w| w.u16(self.vid));
        } else {
            put_set(w, FieldId::VlanVid, u128::from(self.vid & 0xfff | 0x1000));
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let vid = bounded_u16(text.value(), "VLAN VID", 0xfff)?;
        out.push(SetVlanVid { vid, push: true }.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("{}:{}", if self.push { "mod_vlan_vid" } else { "set_vlan_vid" }, self.vid)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        check_set(checker, self.push)
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        tag_in_text(checker);
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Rewrite
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        set_bits(x, self.vid, VlanTag::VID);
    }
}

impl OfAction for SetVlanPcp {
    const NAMES: &'static [&'static str] = &["mod_vlan_pcp", "set_vlan_pcp"];
    const ROWS: &'static [Row] = &[of10(2, 8, |r| read_pcp(r, true)), setter11(2, 8, |r| read_pcp(r, false))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        if self.push && w.version > Version::V10 {
            cx.push_tag_if_none(w);
        }
        if w.version < Version::V12 {
            standard(w, 2, |w| w.u8(self.pcp));
        } else {
            put_set(w, FieldId::VlanPcp, self.pcp.into());
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let pcp = bounded_u16(text.value(), "VLAN PCP", 7)? as u8;
        out.push(SetVlanPcp { pcp, push: true }.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("{}:{}", if self.push { "mod_vlan_pcp" } else { "set_vlan_pcp" }, self.pcp)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        check_set(checker, self.push)
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        tag_in_text(checker);
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Rewrite
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        set_bits(x, u16::from(self.pcp) << 13, VlanTag::PCP);
    }
}

impl OfAction for StripVlan {
    const NAMES: &'static [&'static str] = &["strip_vlan", "pop_vlan"];
    const ROWS: &'static [Row] = &[
        of10(3, 8, |_| Ok(StripVlan { pop: false }.into())),
        of11(18, Len::Is(8), |_| Ok(StripVlan { pop: true }.into())),
    ];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        standard(w, if w.version == Version::V10 { 3 } else { 18 }, |w| w.zeros(4));
        cx.has_vlan = false;
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(StripVlan { pop: text.name == "pop_vlan" }.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        if self.pop { "pop_vlan" } else { "strip_vlan" }.into()
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(checker.flow.vlans[0].is_present())?;
        checker.flow.vlans = [checker.flow.vlans[1], VlanTag::default()];
        Ok(())
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.flow.vlans[0].tci &= !VlanTag::PRESENT;
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Before(20)
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        let (flow, wc) = x.state();
        if flow.vlans[1].is_present() {
            wc.0.vlans[1] = WHOLE;
        }
        flow.vlans = [flow.vlans[1], VlanTag::default()];
    }
}

impl OfAction for PushVlan {
    const NAMES: &'static [&'static str] = &["push_vlan"];
    const ROWS: &'static [Row] = &[of11(17, Len::Is(8), read_push)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    /// In OpenFlow 1.0 the `OFPAT_SET_VLAN_VID` that follows pushes the tag.
    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        if w.version != Version::V10 {
            standard(w, 17, |w| w.u16(self.0));
            cx.has_vlan = true;
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let arg = text.value();
        let tpid = u16_named(arg, "ethertype")?;
        if !is_tpid(tpid) {
            return fail(arg, format!("{arg}: not a valid VLAN ethertype"));
        }
        out.push(PushVlan(tpid).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("push_vlan:0x{:04x}", self.0)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        let flow = &mut checker.flow;
        flow.vlans = [VlanTag { tpid: self.0, tci: VlanTag::PRESENT }, flow.vlans[0]];
        Ok(())
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        tag_in_text(checker);
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::OF11_UP
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Before(50)
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    /// Adds an empty tag, as in OVS; OpenFlow 1.3 §5.12 copies VLAN and priority of the previous one.
    fn translate<X: Translator>(&self, x: &mut X) {
        let (flow, wc) = x.state();
        if flow.packet_type != 0 {
            return x.warning(|| "the packet has no Ethernet header, so no VLAN tag".to_string());
        }
        let tags = flow.vlans.iter().zip(&mut wc.0.vlans);
        tags.filter(|(tag, _)| tag.is_present()).for_each(|(_, mask)| *mask = WHOLE);
        flow.vlans = [VlanTag { tpid: self.0, tci: VlanTag::PRESENT }, flow.vlans[0]];
    }
}
