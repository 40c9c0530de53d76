//! Tests of the codec against captured messages, generated values and damaged ones; of errors, session and reconnection.

mod captured;
mod errors;
mod flow_mod10;
mod generated;
mod groups;
mod reconnect;
mod session;

/// Bytes from hexadecimal digits; spaces are for the reader.
fn hex(digits: &str) -> Vec<u8> {
    let nibble = |c: char| c.to_digit(16).expect("a hexadecimal digit") as u8;
    let digits: Vec<u8> = digits.chars().filter(|c| *c != ' ').map(nibble).collect();
    digits.chunks(2).map(|p| p[0] << 4 | p[1]).collect()
}

/// Every message has the size of the largest kind, and moves through several calls.
#[test]
fn a_message_is_small() {
    assert!(size_of::<crate::Message>() <= 256, "{} bytes", size_of::<crate::Message>());
}
