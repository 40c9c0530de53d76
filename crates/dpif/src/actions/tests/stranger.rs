//! An action added by a third party: it needs only this file and a line of the list. The tests use only public entry
//! points, like every other action.

use crate::actions::prelude::*;
use crate::actions::{PopVlan, Psample, TnlPush, format_actions};
use crate::nlactions::{ActionContext, actions_to_bytes};
use crate::text::NumbersOnly;
use crate::text::values::number;
use crate::{CtAction, UserCookie, XlateDrop};
use flow::{DpPort, OfPort, RecircId};

/// Executes actions on a copy of one packet of `n`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stranger {
    n: u32,
    actions: Vec<DpAction>,
}

/// Beyond those of the kernel.
const ATTR: u16 = 31;

/// Within it.
mod attr {
    pub(super) const N: u16 = 1;
    pub(super) const ACTIONS: u16 = 2;
}

impl Action for Stranger {
    const WORDS: &'static [Word] = &[call("one_of")];
    const ATTRS: &'static [u16] = &[ATTR];
    const EFFECT: Effect = Effect::None;
    const ENDS_LIST: bool = false;

    fn lists(&self) -> Lists<'_> {
        [Some(&self.actions), None]
    }

    fn as_rewrite(&self) -> Option<Rewrite<'_>> {
        None
    }

    fn is_translated(&self) -> bool {
        false
    }

    fn userspace_lacks(&self) -> Option<&'static str> {
        None
    }

    fn lacking(&self, can: &Capabilities) -> Option<&'static str> {
        (!can.clone).then_some("copy one of them")
    }

    fn format(&self, names: &dyn PortNames) -> String {
        format!("one_of(n={},actions({}))", self.n, format_actions(&self.actions, names))
    }

    fn parse(item: &Item<'_>, parser: &Parser<'_>) -> Result<Stranger, TextError> {
        match item.args()? {
            [n, actions] if n.name == "n" && actions.name == "actions" => Ok(Stranger {
                n: number(n.value()?, u32::MAX.into())? as u32,
                actions: parser.list(actions.args()?)?,
            }),
            _ => Err(TextError("one_of: n=NUMBER,actions(…) expected".into())),
        }
    }

    fn write(&self, out: &mut AttrWriter, writer: &Writer<'_>) -> Result<(), ActionError> {
        out.nested(ATTR, |out| {
            out.u32(attr::N, self.n);
            out.nested(attr::ACTIONS, |out| writer.list(out, &self.actions))
        })
    }

    fn read(attr: &Attr<'_>, reader: &Reader) -> Result<Stranger, ActionError> {
        let inner = attr.nested()?;
        let actions = reader.list(inner.require(attr::ACTIONS)?.nested()?)?;
        Ok(Stranger { n: inner.require(attr::N)?.u32()?, actions })
    }

    fn execute<X: Executor>(&self, x: &mut X, packets: X::Packets) -> ExecResult<X> {
        x.sample(packets, u32::MAX / self.n.max(1), &self.actions)
    }
}

fn stranger(n: u32) -> Vec<DpAction> {
    vec![Stranger { n, actions: vec![crate::actions::Output(DpPort(3)).into()] }.into()]
}

#[test]
fn it_is_parsed_and_printed() {
    let text = "one_of(n=4,actions(3))";
    assert_eq!(crate::text::parse_actions(text, &NumbersOnly), Ok(stranger(4)));
    assert_eq!(format_actions(&stranger(4), &NumbersOnly), text);
    for (wrong, part) in [
        ("one_of(n=4)", "actions(…) expected"),
        ("one_of", "no port \"one_of\""),
        ("one_of=4", "'(' expected"),
        ("one_of(n=4,actions(none_of(1)))", "\"none_of\" is not known"),
    ] {
        let error = crate::text::parse_actions(wrong, &NumbersOnly).unwrap_err().to_string();
        assert!(error.contains(part), "{wrong}: {error}");
    }
    let deep = format!("{}1{}", "one_of(n=1,actions(".repeat(11), "))".repeat(11));
    assert!(crate::text::parse_actions(&deep, &NumbersOnly).unwrap_err().to_string().contains("deeper"));
}

#[test]
fn it_is_read_as_written() {
    let context = ActionContext { upcall_pid: 1, in_port: OfPort(1), bridge: [0; 16], explicit_drop: true };
    let bytes = actions_to_bytes(&stranger(4), &context).unwrap();
    assert_eq!(bytes[2..4], (ATTR | 0x8000).to_ne_bytes());
    assert_eq!(crate::nlactions::parse_actions(&bytes), Ok(stranger(4)));
    let deep = (0..17).fold(stranger(1), |actions, n| vec![Stranger { n, actions }.into()]);
    assert_eq!(actions_to_bytes(&deep, &context), Err(ActionError::TooDeep));
}

#[test]
fn it_is_known_to_whoever_asks() {
    let [action] = &stranger(4)[..] else { unreachable!("there is one") };
    assert_eq!(action.lists().flatten().count(), 1);
    assert!(action.has_effect() && !action.is_translated() && action.userspace_lacks().is_none());
    let poor = Capabilities { clone: false, ..Capabilities::ENOUGH };
    assert!(action.needs_emulation(&poor) && !action.needs_emulation(&Capabilities::ENOUGH));
    let around = DpAction::from(crate::actions::CloneAction(stranger(4)));
    assert!(around.needs_emulation(&poor) && around.any(|a| matches!(a, DpAction::Stranger(_))));
}

#[test]
fn it_is_executed() {
    let mut x = Recorder(Vec::new());
    let around = [PopVlan.into(), crate::actions::CloneAction(stranger(2)).into()];
    for action in around.iter().chain(&stranger(1)) {
        assert_eq!(action.execute(&mut x, 7), Ok(7));
    }
    assert_eq!(
        x.0,
        [
            "rewrite 7 PopVlan",
            "copies 7",
            "sample 7 2147483647",
            "output 7 3",
            "sample 7 4294967295",
            "output 7 3"
        ]
    );
}

/// A datapath that records calls of actions, and ends with the dropped packets.
struct Recorder(Vec<String>);

impl Recorder {
    fn note(&mut self, packets: u32, text: String) -> ExecResult<Recorder> {
        let (verb, rest) = text.split_once(' ').unwrap_or((&text, ""));
        self.0.push(format!("{verb} {packets} {rest}").trim_end().into());
        Ok(packets)
    }

    fn run(&mut self, packets: u32, actions: &[DpAction]) -> ExecResult<Recorder> {
        actions.iter().try_fold(packets, |packets, action| action.execute(self, packets))
    }
}

impl Executor for Recorder {
    type Packets = u32;
    type End = XlateDrop;

    fn output(&mut self, packets: u32, port: DpPort) -> ExecResult<Recorder> {
        self.note(packets, format!("output {port}"))
    }

    fn balance(&mut self, packets: u32, bond: u32) -> ExecResult<Recorder> {
        self.note(packets, format!("balance {bond}"))
    }

    fn userspace(&mut self, packets: u32, cookie: &UserCookie) -> ExecResult<Recorder> {
        self.note(packets, format!("userspace {cookie:?}"))
    }

    fn recirculate(&mut self, packets: u32, id: RecircId) -> ExecResult<Recorder> {
        self.note(packets, format!("recirculate {}", id.0))
    }

    fn rewrite(&mut self, packets: u32, rewrite: Rewrite<'_>) -> ExecResult<Recorder> {
        self.note(packets, format!("rewrite {rewrite:?}"))
    }

    fn truncate(&mut self, packets: u32, bytes: u32) -> ExecResult<Recorder> {
        self.note(packets, format!("truncate {bytes}"))
    }

    fn meter(&mut self, packets: u32, id: u32) -> ExecResult<Recorder> {
        self.note(packets, format!("meter {id}"))
    }

    fn track(&mut self, packets: u32, ct: &CtAction) -> ExecResult<Recorder> {
        self.note(packets, format!("track {}", ct.zone))
    }

    fn clear_tracking(&mut self, packets: u32) -> ExecResult<Recorder> {
        self.note(packets, "clear tracking".into())
    }

    fn push_tunnel(&mut self, packets: u32, push: &TnlPush) -> ExecResult<Recorder> {
        self.note(packets, format!("push {} bytes", push.header.bytes().len()))
    }

    fn pop_tunnel(&mut self, packets: u32, port: DpPort) -> ExecResult<Recorder> {
        self.note(packets, format!("pop {port}"))
    }

    fn psample(&mut self, packets: u32, sample: &Psample) -> ExecResult<Recorder> {
        self.note(packets, format!("psample {}", sample.group))
    }

    fn on_copies(&mut self, packets: u32, actions: &[DpAction]) -> ExecResult<Recorder> {
        self.note(packets, "copies".into())?;
        self.run(packets, actions)
    }

    fn sample(&mut self, packets: u32, probability: u32, actions: &[DpAction]) -> ExecResult<Recorder> {
        self.note(packets, format!("sample {probability}"))?;
        self.run(packets, actions)
    }

    fn by_length(
        &mut self,
        packets: u32,
        len: u16,
        greater: &[DpAction],
        less: &[DpAction],
    ) -> ExecResult<Recorder> {
        self.note(packets, format!("length {len}"))?;
        self.run(packets, if packets > len.into() { greater } else { less })
    }

    fn drop_packets(&mut self, _packets: u32, reason: XlateDrop) -> ExecResult<Recorder> {
        Err(reason)
    }

    fn unsupported(&mut self, packets: u32) -> ExecResult<Recorder> {
        self.note(packets, "unsupported".into())
    }
}

/// Calls of each kind of action.
#[test]
fn actions_are_executed() {
    for (text, story) in [
        ("1,trunc(20),2", Ok(vec!["output 1 1", "truncate 1 20", "output 1 2"])),
        ("userspace(slow_path(action))", Ok(vec!["userspace 1 SlowPath { reasons: 2 }"])),
        ("ct(zone=5),ct_clear", Ok(vec!["track 1 5", "clear 1 tracking"])),
        ("meter(4),recirc(0x9)", Ok(vec!["meter 1 4", "recirculate 1 9"])),
        ("clone(drop),1", Err(XlateDrop::Ok)),
        ("sample(sample=100.0%,actions(1)),2", Ok(vec!["sample 1 4294967295", "output 1 1", "output 1 2"])),
        ("set(skb_priority(0x6))", Ok(vec!["rewrite 1 Set(SkbPriority(6))"])),
        ("push_vlan(vid=5,pcp=0)", Ok(vec!["rewrite 1 PushVlan(PushVlan { tpid: 33024, tci: 4101 })"])),
        ("hash(l4(3))", Ok(vec!["rewrite 1 Hash(HashAction { algorithm: L4, basis: 3 })"])),
        (
            "push_mpls(label=1),pop_mpls(eth_type=0x800)",
            Ok(vec![
                "rewrite 1 PushMpls(PushMpls { lse: 4096, ethertype: 34887 })",
                "rewrite 1 PopMpls(PopMpls { ethertype: 2048 })",
            ]),
        ),
        ("dec_ttl(le_1(1))", Ok(vec!["unsupported 1"])),
        (
            "pop_eth,push_eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02)",
            Ok(vec![
                "rewrite 1 PopEth",
                "rewrite 1 PushEth(PushEth { src: [0, 0, 0, 0, 0, 1], dst: [0, 0, 0, 0, 0, 2] })",
            ]),
        ),
        (
            "add_mpls(label=1,bos=1),pop_nsh()",
            Ok(vec![
                "rewrite 1 AddMpls(AddMpls { lse: 4352, ethertype: 34887, is_l3: false })",
                "rewrite 1 PopNsh",
            ]),
        ),
        ("check_pkt_len(size=9,gt(1),le(2))", Ok(vec!["length 1 9", "output 1 2"])),
        ("check_pkt_len(size=0,gt(1),le(2))", Ok(vec!["length 1 0", "output 1 1"])),
    ] {
        let mut x = Recorder(Vec::new());
        let ran = x.run(1, &crate::text::parse_actions(text, &NumbersOnly).unwrap());
        assert_eq!(ran.map(|_| x.0), story.map(|s| s.into_iter().map(String::from).collect()), "{text}");
    }
}
