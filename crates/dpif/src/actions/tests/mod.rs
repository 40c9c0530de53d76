//! Tests of the registry; encodings of single actions are tested beside text and attributes.

pub(super) mod stranger;

use super::list::{ParseFn, ReadFn};
use super::text::{are_distinct, bare, call};
use super::*;
use crate::nlactions::{ActionError, by_attribute};
use crate::text::{NumbersOnly, TextError};

fn parses(_: &crate::text::token::Item<'_>, _: &super::text::Parser<'_>) -> Result<DpAction, TextError> {
    Ok(PopVlan.into())
}

fn reads(_: &flow::nlattr::Attr<'_>, _: &crate::nlactions::Reader) -> Result<DpAction, ActionError> {
    Ok(PopVlan.into())
}

#[test]
fn repeated_words_are_noticed() {
    let parse: ParseFn = parses;
    let (ct, ct_with, both) = ([bare("ct")], [call("ct")], [bare("set"), bare("ct")]);
    assert!(are_distinct(&[(&ct, parse), (&ct_with, parse)]));
    assert!(!are_distinct(&[(&ct_with, parse), (&ct, parse), (&both, parse)]));
    assert!(are_distinct(&[(&[bare("ct_clear")], parse), (&ct, parse)]));
}

#[test]
#[should_panic(expected = "two actions have the same attribute")]
fn repeated_attributes_are_noticed() {
    let read: ReadFn = reads;
    let _readers: [_; 8] = by_attribute(&[(&[1, 2], read), (&[3, 2], read)]);
}

#[test]
#[should_panic(expected = "the table of attributes is too small")]
fn attributes_beyond_the_table_are_noticed() {
    let read: ReadFn = reads;
    let _readers: [_; 8] = by_attribute(&[(&[8], read)]);
}

#[test]
fn effects_are_those_of_nested_lists_too() {
    for (text, has_effect, ends_list) in [
        ("1", true, false),
        ("userspace(slow_path(action))", true, false),
        ("recirc(1)", true, false),
        ("meter(1)", true, false),
        ("psample(group=1)", true, false),
        ("ct(commit)", true, false),
        ("clone(meter(1))", true, false),
        ("check_pkt_len(size=1,gt(),le(2))", true, false),
        ("dec_ttl(le_1(clone(2)))", true, false),
        ("sample(sample=1%,actions(pop_vlan,trunc(9)))", false, false),
        ("set(skb_mark(1))", false, false),
        ("push_vlan(vid=1,pcp=0)", false, false),
        ("trunc(20)", false, false),
        ("drop", false, true),
    ] {
        let action = &parse_actions(text, &NumbersOnly).unwrap()[0];
        assert_eq!((action.has_effect(), action.ends_list()), (has_effect, ends_list), "{text}");
    }
}

#[test]
fn other_programs_have_actions_that_translations_never_make() {
    for (text, is_translated, lacks) in [
        ("1", true, None),
        ("set(tunnel(dst=10.0.0.1,ttl=64))", true, Some("set(tunnel)")),
        ("set(mpls(ttl=9))", true, None),
        ("set(arp(op=1))", true, None),
        ("ct", true, None),
        ("ct_clear", true, None),
        ("hash(l4(0))", true, None),
        ("psample(group=1)", true, None),
        ("dec_ttl(le_1(drop))", false, Some("dec_ttl")),
    ] {
        let action = &parse_actions(text, &NumbersOnly).unwrap()[0];
        assert_eq!((action.is_translated(), action.userspace_lacks()), (is_translated, lacks), "{text}");
    }
}
