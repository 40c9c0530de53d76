//! An action added by a third party: it needs only this file and a line of the list. The tests use only public entry
//! points, like every other action.

use crate::action::{Argument, OfAction, Reference, SetPlace, Stage};
use crate::check::Checker;
use crate::put::{PutContext, nicira};
use crate::rows::{Len, Row, nx};
use crate::text::check::TextChecker;
use crate::text::{format_actions, parse_actions};
use crate::translate::{Translator, set_nw};
use crate::{
    Action, CheckContext, CheckPktLarger, ControllerAction, Ct, LearnAction, Nat, SampleFlow, WriteActions,
    check_actions, put_actions, read_actions, set,
};
use flow::fields::FieldId;
use flow::text::number::u8_named;
use flow::text::{NoPortNames, Parsed, PortNames};
use flow::{Flow, Mask, Match, OfPort, Protocols, TableId, TlvTable, Wide};
use ofp_wire::{ErrorKind, Reader, Res, Version, Writer};
use std::sync::Arc;

/// Lowers the time to live to at most this.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stranger(u8);

impl OfAction for Stranger {
    const NAMES: &'static [&'static str] = &["cap_ttl", "limit_ttl"];
    const ROWS: &'static [Row] = &[nx(4000, Len::Is(16), |r| Ok(Stranger(r.u8()?).into()))];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, 4000, |w| w.u8(self.0));
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(Stranger(u8_named(text.value(), "TTL")?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("cap_ttl:{}", self.0)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        checker.fits(checker.is_ip())
    }

    fn check_text(&self, checker: &mut TextChecker) -> Result<(), String> {
        checker.need("cap_ttl", FieldId::NwTtl)
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Rewrite
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.state().1.0.nw_ttl = u8::MAX;
        if x.flow().nw_ttl > self.0 {
            set_nw(x, FieldId::NwTtl, self.0.into());
            x.detail(|| "capped".into());
        }
    }
}

fn stranger() -> Vec<Action> {
    vec![Stranger(9).into()]
}

#[test]
fn it_is_parsed_and_printed() {
    for text in ["cap_ttl:9", "limit_ttl(9)", "CAP_TTL=9"] {
        assert_eq!(parse_actions(text, &NoPortNames).unwrap(), stranger(), "{text}");
    }
    assert_eq!(format_actions(&stranger(), &NoPortNames), "cap_ttl:9");
    let error = parse_actions("cap_ttl:900", &NoPortNames).unwrap_err();
    assert_eq!(error.message, "invalid TTL \"900\"");
    let nested = parse_actions("write_actions(cap_ttl:9)", &NoPortNames).unwrap();
    assert_eq!(nested, [WriteActions(stranger()).into()]);
}

#[test]
fn it_crosses_the_wire() {
    for version in [Version::V10, Version::V13] {
        let mut w = Writer::new(version);
        put_actions(&mut w, stranger().iter(), &Match::catchall());
        assert_eq!(w.buf, [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0x0f, 0xa0, 9, 0, 0, 0, 0, 0]);
        assert_eq!(read_actions(&mut Reader::new(&w.buf, version)), Ok(stranger()));
        w.buf[3] = 24;
        w.zeros(8);
        assert_eq!(read_actions(&mut Reader::new(&w.buf, version)), Err(ErrorKind::BacBadLen));
    }
}

#[test]
fn it_is_held_against_the_match() {
    let any = Match::catchall();
    let ip = any.with(FieldId::EthType, 0x800);
    let cx = CheckContext {
        version: Version::V13,
        max_ports: 0xff00,
        n_tables: 254,
        table: Some(TableId(0)),
        debug_actions: false,
    };
    assert_eq!(check_actions(&stranger(), &ip, &cx), Ok(()));
    assert_eq!(check_actions(&stranger(), &any, &cx), Err(ErrorKind::BacMatchInconsistent));
    assert_eq!(crate::text::check_actions(&ip, None, &stranger()), Ok(()));
    let refused = crate::text::check_actions(&any, None, &stranger()).unwrap_err();
    assert!(refused.starts_with("cap_ttl nw_ttl lacks correct prerequisites"), "{refused}");
}

#[test]
fn it_keeps_its_place_in_an_action_set() {
    let mut actions = Vec::new();
    let written =
        parse_actions("write_actions(output:1,cap_ttl:7,cap_ttl:9,pop_vlan)", &NoPortNames).unwrap();
    let [Action::WriteActions(written)] = &written[..] else { panic!("{written:?}") };
    set::merge(&mut actions, &written.0);
    let ordered = format_actions(&set::in_order(&actions), &NoPortNames);
    assert_eq!(ordered, "pop_vlan,cap_ttl:7,cap_ttl:9,output:1");
}

#[test]
fn it_is_translated() {
    let ip = Flow { dl_type: 0x800, nw_ttl: 64, ..Flow::default() };
    let mut x = Recorder { original: ip, flow: ip, wc: Mask::none(), story: Vec::new() };
    stranger().iter().for_each(|a| a.translate(&mut x));
    assert_eq!((x.flow.nw_ttl, x.wc.0.nw_ttl, x.original.nw_ttl), (9, u8::MAX, 64));
    stranger().iter().for_each(|a| a.translate(&mut x));
    assert_eq!(x.story, ["capped"]);
}

/// A translation that records calls of actions.
struct Recorder {
    original: Flow,
    flow: Flow,
    wc: Mask,
    story: Vec<String>,
}

impl Translator for Recorder {
    fn flow(&self) -> &Flow {
        &self.flow
    }

    fn state(&mut self) -> (&mut Flow, &mut Mask) {
        (&mut self.flow, &mut self.wc)
    }

    fn original(&self) -> &Flow {
        &self.original
    }

    fn detail(&mut self, text: impl FnOnce() -> String) {
        self.story.push(text());
    }

    fn warning(&mut self, text: impl FnOnce() -> String) {
        self.story.push(text());
    }

    fn error(&mut self, text: impl FnOnce() -> String) {
        self.story.push(text());
    }

    fn encap(&mut self, encap: &crate::Encap) {
        self.story.push(format!("encap {:?}", encap.header));
    }

    fn decap(&mut self, packet_type: Option<u32>) {
        self.story.push(format!("decap {packet_type:?}"));
    }

    fn output(&mut self, port: OfPort, _max_len_bytes: u16) {
        self.story.push(format!("output {port}"));
    }

    fn output_truncated(&mut self, port: OfPort, max_len_bytes: u32) {
        self.story.push(format!("output {max_len_bytes} bytes to {port}"));
    }

    fn output_to(&mut self, port: OfPort) {
        self.story.push(format!("output to {port}"));
    }

    fn output_controller(&mut self, action: &ControllerAction) {
        self.story.push(format!("controller {}", action.controller_id));
    }

    fn resubmit(&mut self, table: Option<TableId>, _in_port: Option<OfPort>, _ct: bool, _honor_miss: bool) {
        self.story.push(format!("resubmit {table:?}"));
    }

    fn track(&mut self, ct: &Ct) {
        self.story.push(format!("track {:?}", ct.table));
    }

    fn clear_tracking(&mut self) {
        self.story.push("clear tracking".to_string());
    }

    fn translate_addresses(&mut self, nat: &Nat) {
        self.story.push(format!("translate {:?}", nat.side));
    }

    fn group(&mut self, id: u32) {
        self.story.push(format!("group {id}"));
    }

    fn clone_packet(&mut self, actions: &[Action]) {
        self.story.push(format!("clone {}", actions.len()));
    }

    fn is_live(&mut self, port: OfPort) -> bool {
        port == OfPort(1)
    }

    fn split_by_length(&mut self, check: &CheckPktLarger) {
        self.story.push(format!("split at {}", check.len_bytes));
    }

    fn learn(&mut self, learn: &LearnAction) -> Option<bool> {
        self.story.push(format!("learn {}", learn.table.0));
        Some(true)
    }

    fn shorten_timeouts(&mut self, idle_s: u16, hard_s: u16) {
        self.story.push(format!("timeouts {idle_s} {hard_s}"));
    }

    fn exit(&mut self) {
        self.story.push("exit".into());
    }

    fn leave_list(&mut self) {
        self.story.push("leave list".into());
    }

    fn push_mpls(&mut self, ethertype: u16) {
        self.story.push(format!("push label {ethertype:#x}"));
    }

    fn pop_mpls(&mut self, ethertype: u16) {
        self.story.push(format!("pop label {ethertype:#x}"));
    }

    fn meter(&mut self, id: u32) {
        self.story.push(format!("meter {id}"));
    }

    fn write_actions(&mut self, actions: &[Action]) {
        self.story.push(format!("write {}", actions.len()));
    }

    fn clear_actions(&mut self) {
        self.story.push("clear".into());
    }

    fn freeze(&mut self) {
        self.story.push("freeze".into());
    }

    fn sample(&mut self, _sample: &SampleFlow) {
        unreachable!()
    }

    fn stay_slow(&mut self) {
        self.story.push("slow".into());
    }

    fn tlv(&self) -> Arc<TlvTable> {
        Arc::default()
    }

    fn stack_push(&mut self, value: Wide, len_bits: u16) {
        self.story.push(format!("push {value:?} of {len_bits} bits"));
    }

    fn stack_pop(&mut self) -> Option<Wide> {
        None
    }

    fn priority_of_queue(&self, _queue: u32) -> Option<u32> {
        None
    }
}
