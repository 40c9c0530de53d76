use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn texts(framer: &mut Framer, chunks: &[&[u8]]) -> Result<Vec<Value>, FrameError> {
    let mut out = Vec::new();
    for chunk in chunks {
        framer.feed(chunk);
        while let Some(json) = framer.next_text()? {
            out.push(json);
        }
    }
    Ok(out)
}

#[test]
fn messages_need_no_separator() {
    let stream = br#"{"a":"}\"{"} [1,[2]]{"b":{}}"#;
    let expected = vec![json!({"a": "}\"{"}), json!([1, [2]]), json!({"b": {}})];
    for size in 1..stream.len() {
        let chunks: Vec<&[u8]> = stream.chunks(size).collect();
        assert_eq!(texts(&mut Framer::default(), &chunks).unwrap(), expected, "chunks of {size}");
    }
}

#[test]
fn bounds() {
    let limits = FramerLimits { bytes: 20, depth: 3, nodes: 4 };
    for (text, expected) in [
        ("x", FrameError::Garbage(b'x')),
        ("[\"aaaaaaaaaaaaaaaaaaaaaaaaaa", FrameError::TooLong(20)),
        ("[[[[", FrameError::TooDeep(3)),
        ("[1,2,3,4,5]", FrameError::TooMany(4)),
    ] {
        let mut framer = Framer::new(limits);
        assert_eq!(texts(&mut framer, &[text.as_bytes()]), Err(expected.clone()));
        assert_eq!(texts(&mut framer, &[b"{}"]), Err(expected), "an error is final");
        assert_eq!(framer.pending_bytes(), 0);
    }
    for text in ["{]", "[01]", "{\"a\"}", "[\"\\ud800\"]", "[\"\u{1}\"]"] {
        let error = texts(&mut Framer::default(), &[text.as_bytes()]).unwrap_err();
        assert!(matches!(error, FrameError::Syntax(_)), "{text}: {error}");
    }
    let deepest = "[".repeat(crate::limits::MAX_DEPTH) + &"]".repeat(crate::limits::MAX_DEPTH);
    assert_eq!(texts(&mut Framer::default(), &[deepest.as_bytes()]).unwrap().len(), 1);
}

#[test]
fn kinds_of_messages() {
    let request = RpcMessage::Request { id: json!(1), method: "m".into(), params: vec![json!(2)] };
    let notification = RpcMessage::Notification { method: "m".into(), params: vec![] };
    let reply = RpcMessage::Reply { id: json!("x"), result: json!({}) };
    let error = RpcMessage::Error { id: json!([1]), error: json!("no") };
    for message in [request, notification, reply, error] {
        assert_eq!(RpcMessage::from_json(message.clone().into_json()), Ok(message));
    }
    for bad in [
        json!([]),
        json!({"id": null, "result": 1}),
        json!({"id": 1, "method": "m"}),
        json!({"id": 1, "method": "m", "params": {}}),
        json!({"id": 1, "method": 5, "params": []}),
        json!({"id": 1, "method": "m", "params": [], "result": 1}),
        json!({"id": 1, "result": 1, "error": 1}),
        json!({"id": 1, "method": "m", "params": [], "jsonrpc": "2.0"}),
    ] {
        assert!(RpcMessage::from_json(bad.clone()).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn any_stream_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = texts(&mut Framer::default(), &[&bytes]);
    }
}
