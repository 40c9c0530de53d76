//! Tokens: keys, values and what attaches them.

use crate::text::token::{Attached, Token, Tokens};

fn told(token: &Token<'_>) -> String {
    let Token { key, value, attached } = token;
    match attached {
        Attached::Nothing => format!("{key}{value}"),
        Attached::Colon => format!("{key} : {value}"),
        Attached::Equals => format!("{key} = {value}"),
        Attached::Parens => format!("{key} ( {value}"),
        Attached::ParensArrow(dest) => format!("{key} ( {value} -> {dest}"),
    }
}

#[test]
fn a_text_is_split_into_keys_and_values() {
    for (text, expected) in [
        ("", vec![]),
        (" ,\t,", vec![]),
        ("ip, tcp", vec!["ip", "tcp"]),
        ("a:1,b=2 c(3)", vec!["a : 1", "b = 2", "c ( 3"]),
        ("a=b(c,d)e,f", vec!["a = b(c,d)e", "f"]),
        ("a(b(c),\"d)\"),e", vec!["a ( b(c),\"d)\"", "e"]),
        ("\"a,b\"=1", vec!["\"a,b\" = 1"]),
        ("é=ü,ö(ä)", vec!["é = ü", "ö ( ä"]),
        ("larger(100)->reg0[0],output:1", vec!["larger ( 100 -> reg0[0]", "output : 1"]),
        ("larger(1)->NXM_NX_REG0[0..3]", vec!["larger ( 1 -> NXM_NX_REG0[0..3]"]),
        ("larger(1)->é ip", vec!["larger ( 1 -> é", "ip"]),
        ("larger(1)->,ip", vec!["larger ( 1 -> ", "ip"]),
        ("load:1->reg0[]", vec!["load : 1->reg0[]"]),
    ] {
        let mut tokens = Tokens::new(text);
        let mut found = Vec::new();
        while let Ok(Some(token)) = tokens.next_token() {
            found.push(told(&token));
        }
        assert_eq!(found, expected, "{text:?}");
    }
    for text in ["a(", "a=b(", "\"a", "a=\"b", "a(\"", "a(b)c", "a(b)(c)"] {
        assert!(Tokens::new(text).next_token().is_err(), "{text:?}");
    }
}
