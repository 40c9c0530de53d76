//! `enqueue`, `set_queue`, `pop_queue`: the queue of outputs.

use super::output::put_output;
use super::prelude::*;
use flow::OfPort;
use flow::text::number::u32_argument;
use flow::text::{format_port, parse_port};

/// Outputs through a queue of a port (`OFPAT_ENQUEUE` of OpenFlow 1.0).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Enqueue {
    /// Port.
    pub port: OfPort,
    /// Queue.
    pub queue: u32,
}

/// Sets the queue for later outputs (`OFPAT_SET_QUEUE`, `NXAST_SET_QUEUE`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetQueue(pub u32);

/// Resets the queue (`NXAST_POP_QUEUE`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PopQueue;

fn read_enqueue(r: &mut Reader<'_>) -> Res<Action> {
    let port = OfPort::from_of10(r.u16()?);
    r.skip(6)?;
    if port.is_reserved() && port != OfPort::IN_PORT {
        return Err(ErrorKind::BacBadOutPort);
    }
    Ok(Enqueue { port, queue: r.u32()? }.into())
}

impl OfAction for Enqueue {
    const NAMES: &'static [&'static str] = &["enqueue"];
    const ROWS: &'static [Row] = &[of10(11, 16, read_enqueue)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    /// From OpenFlow 1.1 on it is written as three actions.
    fn put(&self, w: &mut Writer, cx: &mut PutContext<'_>) {
        if w.version == Version::V10 {
            return standard(w, 11, |w| {
                w.u16(self.port.to_of10().unwrap_or(0xffff));
                w.zeros(6);
                w.u32(self.queue);
            });
        }
        SetQueue(self.queue).put(w, cx);
        put_output(w, self.port, u16::MAX);
        PopQueue.put(w, cx);
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let arg = text.value();
        let mut parts = arg.rsplitn(2, [':', 'q', ',']);
        let (Some(queue), Some(port)) = (parts.next(), parts.next()) else {
            return fail(arg, "\"enqueue\" syntax is \"enqueue:PORT:QUEUE\" or \"enqueue(PORT,QUEUE)\"");
        };
        let Some(number) = parse_port(port.trim(), text.ports) else {
            return fail(port, format!("{port}: enqueue to unknown port"));
        };
        out.push(Enqueue { port: number, queue: u32_argument(queue.trim())? }.into());
        Ok(())
    }

    fn format(&self, ports: &dyn PortNames) -> String {
        format!("enqueue:{}:{}", format_port(self.port, ports), self.queue)
    }

    fn check(&self, checker: &mut Checker<'_>) -> Res<()> {
        let special = self.port == OfPort::IN_PORT || self.port == OfPort::LOCAL;
        if self.port.0 < checker.cx.max_ports || special { Ok(()) } else { Err(ErrorKind::BacBadOutPort) }
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        visit(Reference::Output(self.port));
    }

    /// A queue without a datapath priority counts as none.
    fn translate<X: Translator>(&self, x: &mut X) {
        x.state().1.0.skb_priority = u32::MAX;
        let in_port = x.flow().in_port();
        let Some(priority) = x.priority_of_queue(self.queue) else {
            return x.output(self.port, 0);
        };
        let before = std::mem::replace(&mut x.state().0.skb_priority, priority);
        if self.port == OfPort::IN_PORT {
            x.output_to(in_port);
        } else if self.port != in_port {
            x.output_to(self.port);
        }
        x.state().0.skb_priority = before;
    }
}

impl OfAction for SetQueue {
    const NAMES: &'static [&'static str] = &["set_queue"];
    const ROWS: &'static [Row] = &[
        of11(21, Len::Is(8), |r| Ok(SetQueue(r.u32()?).into())),
        nx(4, Len::Is(16), |r| {
            r.skip(2)?;
            Ok(SetQueue(r.u32()?).into())
        }),
    ];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if w.version == Version::V10 {
            nicira(w, 4, |w| {
                w.zeros(2);
                w.u32(self.0);
            });
        } else {
            standard(w, 21, |w| w.u32(self.0));
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        out.push(SetQueue(u32_argument(text.value())?).into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("set_queue:{}", self.0)
    }

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::After(90)
    }

    fn references(&self, _visit: &mut dyn FnMut(Reference)) {}

    fn translate<X: Translator>(&self, x: &mut X) {
        x.state().1.0.skb_priority = u32::MAX;
        if let Some(priority) = x.priority_of_queue(self.0) {
            x.state().0.skb_priority = priority;
        }
    }
}

impl OfAction for PopQueue {
    nicira_word!(PopQueue, "pop_queue", 5);

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    /// Restores the packet's original priority.
    fn translate<X: Translator>(&self, x: &mut X) {
        let came_with = x.original().skb_priority;
        let (flow, wc) = x.state();
        wc.0.skb_priority = u32::MAX;
        if std::mem::replace(&mut flow.skb_priority, came_with) != came_with {
            x.detail(|| match came_with {
                0 => "queue = 0".to_string(),
                n => format!("queue = {n:#x}"),
            });
        }
    }
}
