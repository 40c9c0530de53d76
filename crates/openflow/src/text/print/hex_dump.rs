//! Bytes as hexadecimal lines, as OVS tools dump them.

use std::fmt::Write as _;

use super::put;

const LINE_BYTES: usize = 16;

/// Lines of 16 bytes with their offsets; `ascii`: with the printable characters behind.
pub fn hex_dump(bytes: &[u8], ascii: bool) -> String {
    let mut out = String::new();
    for (n, line) in bytes.chunks(LINE_BYTES).enumerate() {
        put!(out, "{:08x} ", n * LINE_BYTES);
        for at in 0..LINE_BYTES {
            let before = if at == LINE_BYTES / 2 && at < line.len() { '-' } else { ' ' };
            match line.get(at) {
                Some(byte) => put!(out, "{before}{byte:02x}"),
                // A dash follows the eighth byte even if it is the last one.
                None => {
                    let dash = at == LINE_BYTES / 2 && line.len() == at;
                    out.push_str(if dash {
                        "-"
                    } else if ascii {
                        " "
                    } else {
                        ""
                    });
                    out.push_str(if ascii { "  " } else { "" });
                }
            }
        }
        if ascii {
            let shown = |byte: &u8| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' };
            let text: String = line.iter().map(shown).collect();
            put!(out, " |{text:<16}|");
        }
        out.push('\n');
    }
    out
}
