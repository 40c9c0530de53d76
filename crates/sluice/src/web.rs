//! `sluice web`: a page with live statistics, for browsers of this machine.
//!
//! It is read only, and listens at a loopback address only. The page (`web/page.html`) has all it needs in itself; it asks
//! for [`DATA`], the view of `sluice top` as JSON, once an interval. The daemon is asked for one reading an interval, however many
//! pages are open, and not at all while none is. Requests that name another host are refused: a page of another site cannot
//! read the switch by a name that it lets point here.

#[cfg(test)]
mod tests;

use crate::appctl::DEFAULT_TARGET;
use crate::remote::{complain, print};
use crate::status;
use crate::status_model::StatusModel;
use crate::top::model::Follower;
use crate::top::text;
use anyhow::{Context, Result, ensure};
use httpd::{Address, Limits, Reply, Request, Server, Service};
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PROGRAM: &str = "sluice web";
const PAGE: &str = include_str!("web/page.html");
/// Path of the values.
const DATA: &str = "/data.json";
/// Without a reading for this long, rates begin anew: they would be those of an interval that nobody looked at.
const PAUSE: Duration = Duration::from_secs(10);
/// The page loads nothing from anywhere, and no other page frames it.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                       connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n\
                       X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

/// Arguments of `sluice web`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Loopback address and port to listen at; port 0 chooses a free one
    #[arg(short, long, default_value = "127.0.0.1:9180")]
    listen: SocketAddr,
    /// Seconds between two readings
    #[arg(short, long, default_value = "1", value_parser = crate::top::parse_delay)]
    delay: Duration,
    /// The daemon: its name, or the path of its control socket
    #[arg(short, long, default_value = DEFAULT_TARGET)]
    target: String,
    /// Timeout for a reply in seconds; 0 waits for ever
    #[arg(long, default_value_t = 10)]
    timeout: u32,
}

/// Runs it; returns the exit code.
pub(crate) fn main(options: &Options) -> u8 {
    match run(options) {
        Ok(()) => 0,
        Err(error) => {
            complain(PROGRAM, &format!("{error:#}"));
            1
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let Options { listen, delay, target, timeout } = options;
    ensure!(
        listen.ip().is_loopback(),
        "--listen={listen}: not a loopback address; from elsewhere, reach the page by `ssh -L`"
    );
    let server = Server::bind(&Address::Tcp(*listen), Limits::default())
        .with_context(|| format!("--listen={listen}: cannot listen"))?;
    let port = server.port().unwrap_or(listen.port());
    print(&format!("http://{}/\n", SocketAddr::new(listen.ip(), port)));
    let (target, timeout) = (target.clone(), *timeout);
    let read = move || {
        let value = status::read(&target, timeout).map_err(|e| format!("{e:#}"))?;
        StatusModel::from_json(&value)
    };
    server.run(&mut Web::new(*delay, Box::new(read))).context("cannot wait for events")
}

/// Asks the daemon.
type Read = Box<dyn FnMut() -> Result<StatusModel, String>>;

/// Answers browsers.
struct Web {
    read: Read,
    delay: Duration,
    start: Instant,
    follower: Follower,
    /// Time of the last reading.
    asked: Option<Instant>,
}

impl Web {
    fn new(delay: Duration, read: Read) -> Web {
        Web { read, delay, start: Instant::now(), follower: Follower::default(), asked: None }
    }

    /// The values, read again once an interval.
    fn data(&mut self) -> Vec<u8> {
        let now = Instant::now();
        let age = self.asked.map(|asked| now - asked);
        if age.is_some_and(|age| age > PAUSE.max(self.delay * 3)) {
            self.follower = Follower::default();
        }
        if age.is_none_or(|age| age >= self.delay) {
            let reading = (self.read)();
            self.follower.take(now - self.start, reading);
            self.asked = Some(now);
        }
        let mut value = text::value(&self.follower.view);
        value["notice"] = json!(self.follower.notice);
        value["delay_s"] = json!(self.delay.as_secs_f64());
        value.to_string().into_bytes()
    }
}

/// Whether a `Host` is this machine, by a name that no other site can have.
fn is_here(host: &str) -> bool {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let name =
        host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

impl Service for Web {
    fn answer(&mut self, request: &Request<'_>) -> Reply {
        if !is_here(request.host) {
            return Reply::text(403, "this page is for browsers of this machine");
        }
        let of =
            |content_type, body| Reply { status: 200, content_type, headers: HEADERS, body: Arc::new(body) };
        match request.path {
            "/" => of("text/html; charset=utf-8", PAGE.into()),
            DATA => of("application/json", self.data()),
            _ => Reply::text(404, "there are / and /data.json"),
        }
    }
}
