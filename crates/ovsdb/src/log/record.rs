//! Records: a line with length and checksum, then JSON of that length.

use serde_json::Value;
use sha1::{Digest, Sha1};

use crate::limits::MAX_LOG_HEADER_BYTES;

const MAGIC: &str = "OVSDB JSON ";

/// One record with this content.
pub fn encode_record(json: &Value) -> Vec<u8> {
    let mut body = json.to_string();
    body.push('\n');
    let mut record = format!("{MAGIC}{} {}\n", body.len(), checksum(body.as_bytes())).into_bytes();
    record.extend_from_slice(body.as_bytes());
    record
}

fn checksum(bytes: &[u8]) -> String {
    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Offset and reason of the first invalid data in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {reason}")]
pub struct Damage {
    /// Length of the valid part, bytes.
    pub offset: usize,
    /// The fault.
    pub reason: String,
    /// Another record begins after the damage: it is not the torn end of an interrupted write, and truncating
    /// at `offset` would lose acknowledged transactions.
    pub more_follows: bool,
}

/// Reads records one by one.
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the beginning of a file.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, offset: 0 }
    }

    /// Offset of the next record: the length of the part read so far.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The next record, `None` at the end. After damage every call reports it again.
    pub fn next_record(&mut self) -> Result<Option<Value>, Damage> {
        let rest = &self.bytes[self.offset..];
        if rest.is_empty() {
            return Ok(None);
        }
        match record(rest) {
            Ok((json, length)) => {
                self.offset += length;
                Ok(Some(json))
            }
            Err(reason) => {
                let more_follows =
                    rest.windows(MAGIC.len() + 1).any(|w| w[0] == b'\n' && &w[1..] == MAGIC.as_bytes());
                Err(Damage { offset: self.offset, reason, more_follows })
            }
        }
    }
}

fn record(bytes: &[u8]) -> Result<(Value, usize), String> {
    let header_end = bytes
        .iter()
        .take(MAX_LOG_HEADER_BYTES)
        .position(|byte| *byte == b'\n')
        .ok_or("the line that opens the record does not end")?;
    let header = std::str::from_utf8(&bytes[..header_end])
        .map_err(|_| "the line that opens the record is not text")?;
    let (length, sum) = header
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.split_once(' '))
        .ok_or("a record must open with \"OVSDB JSON <length> <sha1>\"")?;
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    let length: usize = length
        .parse()
        .ok()
        .filter(|n| digits && *n > 0)
        .ok_or("the record's length is not a positive number")?;
    let body_start = header_end + 1;
    let body = body_start
        .checked_add(length)
        .and_then(|end| bytes.get(body_start..end))
        .ok_or_else(|| format!("the record has {} of its {length} bytes", bytes.len() - body_start))?;
    if !checksum(body).eq_ignore_ascii_case(sum) {
        return Err("the record's checksum is wrong".into());
    }
    let json = serde_json::from_slice(body).map_err(|error| format!("the record is not JSON: {error}"))?;
    Ok((json, body_start + length))
}
