//! Information that probes lack: the switch's process, and the names of its ports, from its event socket.

use anyhow::{Result, bail};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use upcall_events::{Decoder, Record};

/// Port names, while the switch reports them.
pub(super) struct Names {
    stream: Option<UnixStream>,
    decoder: Decoder,
    ended: bool,
}

/// The process id of the switch with sockets in a folder.
///
/// # Errors
/// There is none, or several.
pub(super) fn find(run_dir: &Path) -> Result<u32> {
    let entries = std::fs::read_dir(run_dir).into_iter().flatten().flatten();
    let of_socket = |name: &str| name.strip_prefix("sluiced.")?.strip_suffix(".events")?.parse().ok();
    let mut pids: Vec<u32> = entries.filter_map(|e| of_socket(e.file_name().to_str()?)).collect();
    pids.extend(
        std::fs::read_to_string(run_dir.join("ovs-vswitchd.pid"))
            .ok()
            .and_then(|t| t.trim().parse::<u32>().ok()),
    );
    pids.retain(|pid| Path::new(&format!("/proc/{pid}")).exists());
    pids.sort_unstable();
    pids.dedup();
    match pids[..] {
        [pid] => Ok(pid),
        [] => bail!(
            "{}: no switch runs there; name its process by --pid, or its folder by OVS_RUNDIR",
            run_dir.display()
        ),
        _ => bail!("{}: several switches run there ({pids:?}); choose one by --pid", run_dir.display()),
    }
}

impl Names {
    /// Connects to a switch; `None` if that fails.
    pub(super) fn of(run_dir: &Path, pid: u32) -> Option<Names> {
        let path: PathBuf = run_dir.join(format!("sluiced.{pid}.events"));
        let mut stream = UnixStream::connect(path).ok()?;
        stream.set_nonblocking(true).ok()?;
        stream.write_all(b"stages=none\n").ok()?;
        Some(Names { stream: Some(stream), decoder: Decoder::new(), ended: false })
    }

    /// Port records since the last call.
    pub(super) fn take(&mut self) -> Vec<Record> {
        let mut out = Vec::new();
        let mut buf = [0; 4096];
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut buf) {
                Ok(n) if n > 0 => self.decoder.push(&buf[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                _ => self.stream = None,
            }
            loop {
                match self.decoder.next() {
                    Ok(Some(record @ (Record::Port { .. } | Record::PortGone { .. }))) => out.push(record),
                    Ok(Some(Record::End)) => self.ended = true,
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    // Another listener is served, or it is no stream of ours.
                    Err(_) => {
                        self.stream = None;
                        break;
                    }
                }
            }
        }
        out
    }

    /// Whether the switch reported its exit.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }
}
