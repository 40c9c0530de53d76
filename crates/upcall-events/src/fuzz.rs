//! Entry points for fuzzing: any bytes in, no panic out.

use crate::codec::{Decoder, FRAME_BYTES_MAX, encode_header};

/// A stream of records: pushing it whole and byte by byte yields the same, and decoded records survive
/// re-encoding.
pub fn stream(bytes: &[u8]) {
    let mut whole = Decoder::new();
    whole.push(bytes);
    let mut records = Vec::new();
    let end = loop {
        match whole.next() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => break whole.finish(),
            Err(error) => break Err(error),
        }
    };
    let (mut pieces, mut seen) = (Decoder::new(), 0);
    for piece in bytes.chunks(7) {
        pieces.push(piece);
        while let Ok(Some(record)) = pieces.next() {
            assert_eq!(record, records[seen]);
            seen += 1;
        }
    }
    assert_eq!((seen, pieces.finish()), (records.len(), end));

    let mut again = Vec::new();
    encode_header(&mut again);
    for record in &records {
        let start = again.len();
        record.encode(&mut again);
        assert!(again.len() - start <= FRAME_BYTES_MAX + 3);
    }
    let mut decoder = Decoder::new();
    decoder.push(&again);
    for record in &records {
        assert_eq!(decoder.next().as_ref(), Ok(&Some(record.clone())));
    }
    assert_eq!((decoder.next(), decoder.finish()), (Ok(None), Ok(())));
}
