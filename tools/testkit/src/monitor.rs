//! Messages that a monitor of an OpenFlow connection prints, without those that the test itself needs.

use std::time::Duration;

use anyhow::Result;

use crate::command::Running;
use crate::wait::wait_for;

/// Standard error of a monitor (`ovs-ofctl monitor`) up to the message with the text `end`, which it prints after `act`.
///
/// `poke` makes the switch send a message whose first line has the text `mark`. The first one shows that the monitor
/// receives, one after `act` that the message of `end` is whole. Both are left out of the result.
///
/// # Errors
/// A message does not come within `limit`.
pub fn monitored(
    monitor: &Running,
    (poke, mark): (&dyn Fn(), &str),
    act: impl FnOnce(),
    end: &str,
    limit: Duration,
) -> Result<String> {
    wait_for(limit, "the first message", || {
        poke();
        monitor.stderr().contains(mark)
    })?;
    act();
    let after = |text: &str| text.find(end).map(|at| at + end.len());
    wait_for(limit, end, || after(&monitor.stderr()).is_some())?;
    poke();
    let whole = |text: &str| after(text).is_some_and(|at| text[at..].contains(mark));
    wait_for(limit, "the message after the last one", || whole(&monitor.stderr()))?;
    Ok(without(&monitor.stderr(), mark))
}

/// The messages of `text` without those whose first lines have `mark`. A first line has a transaction id.
fn without(text: &str, mark: &str) -> String {
    let mut is_marked = false;
    let kept = text.split_inclusive('\n').filter(|line| {
        if line.contains("(xid=") {
            is_marked = line.contains(mark);
        }
        !is_marked
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_are_left_out_whole() {
        let text =
            "A (xid=0x1): one\nB (xid=0x2): two\n 00 01\n 02 03\nC (xid=0x0):\n two\nB (xid=0x3): two\n 00";
        assert_eq!(super::without(text, "two"), "A (xid=0x1): one\nC (xid=0x0):\n two\n");
        assert_eq!(super::without("", "two"), "");
    }
}
