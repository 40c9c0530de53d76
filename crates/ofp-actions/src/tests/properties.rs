//! Printed actions parse to the same; no text causes a panic in a parser.

use crate::text::{format_actions, parse_actions};
use crate::*;
use flow::fields::{ALL_FIELDS, FieldFormat, FieldId};
use flow::text::NoPortNames;
use flow::{MacAddr, OfPort, SubField, TableId};
use proptest::prelude::*;

/// A value and mask expressible in the field's syntax.
fn expressible(field: FieldId, value: u128, mask: u128) -> (u128, u128) {
    let full = field.full_mask();
    let port = [1, 7, 0xfeff, 0xffff_fffe][value as usize % 4];
    let mask = if field.def().maskable && mask & full != 0 { mask & full } else { full };
    let (value, mask) = match field.def().format {
        FieldFormat::OfPort16 => (port & 0xffff, full),
        FieldFormat::OfPort32 => (port, full),
        FieldFormat::Frag => [(0, 3), (1, 3), (3, 3), (1, 1), (0, 2)][value as usize % 5],
        FieldFormat::CtState if mask & 0xff == 0 || mask & 0xff == 0xff => (value & 0xff, full),
        FieldFormat::CtState => (value, mask & 0xff),
        _ => (value, mask),
    };
    (value & mask, mask)
}

fn any_subfield(writable: bool) -> impl Strategy<Value = SubField> {
    (0..ALL_FIELDS.len(), any::<u16>(), 1u16..129).prop_map(move |(i, offset, len)| {
        let usable = |f: &&FieldId| {
            let d = f.def();
            let conntrack = matches!(f, FieldId::CtMark | FieldId::CtLabel);
            (d.nxm.is_some() || d.oxm.is_some()) && (!writable || d.writable && !conntrack)
        };
        let fields: Vec<FieldId> =
            ALL_FIELDS.iter().filter(|f| f.metadata_index().is_none()).filter(usable).copied().collect();
        let field = fields[i % fields.len()];
        let bits = field.def().bits;
        let offset_bits = offset % bits;
        SubField { field, offset_bits, len_bits: (len - 1) % (bits - offset_bits) + 1 }
    })
}

fn low(value: u128, len_bits: u16) -> u128 {
    value & (u128::MAX >> (128 - u32::from(len_bits)))
}

fn any_load() -> impl Strategy<Value = Action> {
    (any_subfield(true), any::<u128>()).prop_map(|(mut sub, value)| {
        sub.len_bits = sub.len_bits.min(64);
        let value = low(value, sub.len_bits) << sub.offset_bits;
        Action::SetField(SetField { field: sub.field, value, mask: sub.field_mask(), style: SetStyle::Load })
    })
}

fn any_set_field() -> impl Strategy<Value = Action> {
    (any_subfield(true), any::<u128>(), any::<u128>()).prop_map(|(sub, value, mask)| {
        let field = sub.field;
        let (value, mask) = expressible(field, value, mask);
        let value = match field {
            FieldId::VlanVid => (value | 0x1000) & mask,
            FieldId::NwTos => value & !3,
            _ => value,
        };
        Action::SetField(SetField { field, value, mask, style: SetStyle::SetField })
    })
}

fn any_move() -> impl Strategy<Value = (SubField, SubField)> {
    (any_subfield(false), any_subfield(true)).prop_map(|(mut a, mut b)| {
        let len_bits = a.len_bits.min(b.len_bits);
        (a.len_bits, b.len_bits) = (len_bits, len_bits);
        (a, b)
    })
}

fn any_spec() -> impl Strategy<Value = LearnSpec> {
    let immediate = (any_subfield(true), any::<u128>(), any::<bool>()).prop_map(|(sub, value, load)| {
        let len_bits = sub.len_bits;
        let value = low(value, len_bits);
        let whole = sub == SubField::whole(sub.field);
        let value = if whole && !load { expressible(sub.field, value, u128::MAX).0 } else { value };
        let value = if whole && sub.field == FieldId::NwTos { value & !3 } else { value };
        let dest = if load { LearnDest::Load(sub) } else { LearnDest::Match(sub) };
        LearnSpec { source: LearnSource::Immediate(value), dest, len_bits }
    });
    let copied = (any_move(), 0..3).prop_map(|((source, dest), kind)| {
        let len_bits = source.len_bits;
        let dest = match kind {
            0 => LearnDest::Match(dest),
            1 => LearnDest::Load(dest),
            _ => LearnDest::Output,
        };
        LearnSpec { source: LearnSource::Field(source), dest, len_bits }
    });
    prop_oneof![immediate, copied]
}

fn any_learn() -> impl Strategy<Value = Action> {
    let numbers = (any::<[u16; 5]>(), any::<u64>(), 0u8..255, any::<u32>(), any::<[bool; 2]>());
    let result = prop::option::of(any_subfield(true));
    (numbers, result, prop::collection::vec(any_spec(), 0..5)).prop_map(|(numbers, result, specs)| {
        let ([idle, hard, fin_idle, fin_hard, priority], cookie, table, limit, [rem, delete]) = numbers;
        Action::Learn(Box::new(LearnAction {
            idle_timeout_s: idle,
            hard_timeout_s: hard,
            priority,
            cookie,
            table: TableId(table),
            send_flow_rem: rem,
            delete_learned: delete,
            fin_idle_timeout_s: fin_idle,
            fin_hard_timeout_s: fin_hard,
            limit,
            result_dst: result.map(|mut sub| {
                sub.len_bits = 1;
                sub
            }),
            specs,
        }))
    })
}

fn any_controller() -> impl Strategy<Value = Action> {
    let reason = prop::sample::select(vec![
        PacketInReason::NoMatch,
        PacketInReason::Action,
        PacketInReason::InvalidTtl,
        PacketInReason::Group,
    ]);
    let userdata = prop::collection::vec(any::<u8>(), 0..9);
    (any::<u16>(), any::<u16>(), reason, userdata, any::<bool>(), prop::option::of(1u32..9)).prop_map(
        |(max_len_bytes, controller_id, reason, userdata, pause, meter_id)| {
            let c = ControllerAction { max_len_bytes, controller_id, reason, userdata, pause, meter_id };
            Action::Controller(Box::new(c))
        },
    )
}

fn any_sample() -> impl Strategy<Value = Action> {
    let id = || {
        let field = any_subfield(false).prop_map(|mut range| {
            range.len_bits = range.len_bits.min(32);
            SampleId::Field(range)
        });
        prop_oneof![any::<u32>().prop_map(SampleId::Number), field]
    };
    let direction = prop::sample::select(vec![
        SampleDirection::ByPort,
        SampleDirection::Ingress,
        SampleDirection::Egress,
    ]);
    (
        1u16..,
        any::<u32>(),
        id(),
        id(),
        prop_oneof![Just(OfPort::NONE), (0u32..0xff00).prop_map(OfPort)],
        direction,
    )
        .prop_map(|(probability, collector_set, domain, point, port, direction)| {
            Action::Sample(SampleFlow { probability, collector_set, domain, point, port, direction })
        })
}

fn any_simple() -> impl Strategy<Value = Action> {
    let note = prop::collection::vec(any::<u8>(), 0..30).prop_map(|mut bytes| {
        while bytes.len() % 8 != 6 {
            bytes.push(0);
        }
        Action::Note(Note(bytes))
    });
    prop_oneof![
        (0u32..0xff00).prop_map(|p| Action::Output(Output { port: OfPort(p), max_len_bytes: 0 })),
        (0xffff_fff8u32..0xffff_fffd)
            .prop_map(|p| Action::Output(Output { port: OfPort(p), max_len_bytes: 0 })),
        (0..7usize, any::<u16>(), any::<u16>(), any::<u32>()).prop_map(|(n, basis, max_link, arg)| {
            let dest = SubField::whole(FieldId::Reg0);
            let (fields, algorithm) = (flow::flow_hash::HashFields::ALL[n], LinkAlgorithm::Hrw);
            Action::Multipath(Multipath { fields, basis, algorithm, max_link, arg, dest })
        }),
        (0..7usize, any::<u16>(), any::<bool>(), prop::collection::vec(0u32..0xff00, 0..4), any::<bool>())
            .prop_map(|(n, basis, hrw, members, load)| {
                let algorithm = if hrw { MemberAlgorithm::Hrw } else { MemberAlgorithm::ActiveBackup };
                let (fields, members) =
                    (flow::flow_hash::HashFields::ALL[n], members.into_iter().map(OfPort).collect());
                let dest = load.then(|| SubField::whole(FieldId::Xreg1));
                Action::Bundle(Box::new(Bundle { fields, basis, algorithm, members, dest }))
            }),
        (any::<u16>(), 0u16..128).prop_map(|(len_bytes, offset_bits)| {
            let dest = SubField { field: FieldId::Xxreg1, offset_bits, len_bits: 1 };
            Action::CheckPktLarger(CheckPktLarger { len_bytes, dest })
        }),
        (0u8..64).prop_map(|i| Action::DeleteField(DeleteField(FieldId::tun_metadata(i).unwrap()))),
        any_sample(),
        (0u32..0xff00, 14u32..).prop_map(|(p, max_len_bytes)| {
            Action::OutputTrunc(OutputTrunc { port: OfPort(p), max_len_bytes })
        }),
        (0u32..0xff00, any::<u32>())
            .prop_map(|(p, queue)| Action::Enqueue(Enqueue { port: OfPort(p), queue })),
        any::<u32>().prop_map(|v| Action::SetQueue(SetQueue(v))),
        Just(Action::PopQueue(PopQueue)),
        (0u16..4096).prop_map(|v| Action::SetVlanVid(SetVlanVid { vid: v, push: true })),
        (0u8..8).prop_map(|v| Action::SetVlanPcp(SetVlanPcp { pcp: v, push: true })),
        Just(Action::StripVlan(StripVlan { pop: false })),
        prop::sample::select(vec![0x8100, 0x88a8]).prop_map(|v| Action::PushVlan(PushVlan(v))),
        any::<[u8; 6]>().prop_map(|m| Action::SetEthSrc(SetEthSrc(MacAddr(m)))),
        any::<[u8; 6]>().prop_map(|m| Action::SetEthDst(SetEthDst(MacAddr(m)))),
        any::<u32>().prop_map(|v| Action::SetIpv4Src(SetIpv4Src(v))),
        any::<u32>().prop_map(|v| Action::SetIpv4Dst(SetIpv4Dst(v))),
        any::<u8>().prop_map(|t| Action::SetIpDscp(SetIpDscp(t & !3))),
        (0u8..4).prop_map(|v| Action::SetIpEcn(SetIpEcn(v))),
        any::<u8>().prop_map(|v| Action::SetIpTtl(SetIpTtl(v))),
        any::<u16>().prop_map(|v| Action::SetL4Src(SetL4Src(v))),
        any::<u16>().prop_map(|v| Action::SetL4Dst(SetL4Dst(v))),
        prop::collection::vec(any::<u16>(), 1..4)
            .prop_map(|controllers| Action::DecTtl(DecTtl { controllers })),
        any::<u32>().prop_map(|id| Action::SetTunnel(SetTunnel { id: id.into(), wide: false })),
        any::<u64>().prop_map(|id| Action::SetTunnel(SetTunnel { id, wide: true })),
        (0u32..0xff00, any::<bool>()).prop_map(|(p, ct)| Action::Resubmit(Resubmit {
            in_port: OfPort(p),
            table: None,
            ct
        })),
        (0u8..255, any::<bool>()).prop_map(|(t, ct)| {
            Action::Resubmit(Resubmit { in_port: OfPort::IN_PORT, table: Some(TableId(t)), ct })
        }),
        (0u32..9, 0u8..255, any::<bool>()).prop_map(|(p, t, ct)| {
            Action::Resubmit(Resubmit { in_port: OfPort(p), table: Some(TableId(t)), ct })
        }),
        (any::<u16>(), 0u16..9).prop_map(|(idle_timeout_s, hard_timeout_s)| Action::FinTimeout(FinTimeout {
            idle_timeout_s,
            hard_timeout_s
        })),
        note,
        prop::sample::select(vec![
            Action::Exit(Exit),
            Action::DebugRecirc(DebugRecirc),
            Action::DebugSlow(DebugSlow)
        ]),
    ]
}

fn any_applied() -> impl Strategy<Value = Action> {
    let output = any_subfield(false).prop_map(|mut source| {
        source.len_bits = source.len_bits.min(64);
        Action::OutputReg(OutputReg { source, max_len_bytes: u16::MAX })
    });
    let plain = prop_oneof![
        6 => any_simple(),
        1 => output,
        1 => any_controller(),
        1 => any_load(),
        1 => any_set_field(),
        1 => any_move().prop_map(|(source, dest)| Action::Move(Move { source, dest, is_onf: false })),
        1 => any_subfield(false).prop_map(|v| Action::StackPush(StackPush(v))),
        1 => any_subfield(true).prop_map(|v| Action::StackPop(StackPop(v))),
        2 => any_learn(),
    ];
    plain.prop_recursive(3, 12, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![4 => inner, 1 => list.prop_map(|list| Action::Clone(CloneList(list)))]
    })
}

fn any_actions() -> impl Strategy<Value = Vec<Action>> {
    let set = prop_oneof![any_set_field(), any_load(), (0u32..9).prop_map(|v| Action::SetQueue(SetQueue(v)))];
    let instructions = (
        prop::option::of(any::<u32>().prop_map(|v| Action::Meter(Meter(v)))),
        prop::option::of(Just(Action::ClearActions(ClearActions))),
        prop::option::of(
            prop::collection::vec(set, 1..4).prop_map(|v| Action::WriteActions(WriteActions(v))),
        ),
        prop::option::of(
            any::<[u64; 2]>().prop_map(|[value, mask]| Action::WriteMetadata(WriteMetadata { value, mask })),
        ),
        prop::option::of(any::<u8>().prop_map(|t| Action::GotoTable(GotoTable(TableId(t))))),
    );
    (prop::collection::vec(any_applied(), 0..6), instructions).prop_map(|(applied, (a, b, c, d, e))| {
        a.into_iter().chain(applied).chain(b).chain(c).chain(d).chain(e).collect()
    })
}

/// Text made of pieces of the syntax, to pass the first check.
fn any_line() -> impl Strategy<Value = String> {
    let words = include_str!("action_errors.tsv").lines().chain(include_str!("actions.tsv").lines());
    let pieces: Vec<&'static str> = words
        .filter(|l| !l.starts_with('#'))
        .flat_map(|l| l.split(['\t', ',', '(', ')', ':', '[']))
        .chain([
            ",", "=", ":", "(", ")", "[", "]", "->", "..", "/", "\"", "actions=", "é", "-", "+", "|", "*",
            "learn(",
        ])
        .collect();
    prop::collection::vec(prop::sample::select(pieces), 0..12).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn printed_actions_parse_to_themselves(actions in any_actions()) {
        let text = format_actions(&actions, &NoPortNames);
        prop_assert_eq!(parse_actions(&text, &NoPortNames), Ok(actions), "{}", text);
    }

    #[test]
    fn pieces_of_syntax_do_not_panic(text in any_line()) {
        fuzz::parse_flow_mods(text.as_bytes());
        fuzz::parse_actions(text.as_bytes());
    }

    #[test]
    fn any_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), text in ".{0,60}") {
        for input in [bytes.as_slice(), text.as_bytes()] {
            fuzz::parse_flow_mods(input);
            fuzz::parse_actions(input);
            fuzz::read_actions(input);
        }
    }
}
