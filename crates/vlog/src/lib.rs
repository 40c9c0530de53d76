//! Logging in the format of OVS: `TIME|SEQUENCE|MODULE|LEVEL|MESSAGE`, with a level per module and
//! destination (console, syslog, file), adjustable at run time.
//!
//! Modules are the targets of the `log` macros. A module that logs too fast is rate-limited; the number of
//! suppressed messages is logged.
#![forbid(unsafe_code)]

mod modules;
mod pattern;
mod syslog;

use log::{LevelFilter, Log, Metadata, Record};
use modules::MODULES;
pub use pattern::date;
use pattern::{Line, Pattern};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use sync::{AtomicU64, Mutex, Ordering, lock};
use syslog::Syslog;

/// Destinations in the order of `vlog/list`.
const DESTINATIONS: [&str; 3] = ["console", "syslog", "file"];
const CONSOLE: usize = 0;
const SYSLOG: usize = 1;
const FILE: usize = 2;

/// Messages per second and module, and size of a burst.
const RATE_PER_S: u64 = 20;
const BURST: u64 = 1000;

/// Initial patterns of lines, by destination.
const DEFAULT_PATTERNS: [&str; 3] = [
    "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m",
    "ovs|%05N|%c%T|%p|%m",
    "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m",
];
/// Lines for `--syslog-target` (RFC 5424): the mark of UTF-8 precedes the message.
const TARGET_PATTERN: &str = "1 %D{%Y-%m-%dT%H:%M:%S.###Z} %E %A %P %c - \u{feff}%m";

/// Severities in the order of their levels.
const SEVERITIES: [&str; 4] = ["ERR", "WARN", "INFO", "DBG"];

struct Limiter {
    tokens: u64,
    filled_ms: u64,
    dropped: u64,
}

struct Inner {
    levels: BTreeMap<&'static str, [LevelFilter; 3]>,
    limiters: BTreeMap<String, Limiter>,
    /// Modules without rate limit.
    unlimited: BTreeSet<&'static str>,
    path: Option<PathBuf>,
    file: Option<File>,
    syslog: Syslog,
    /// A second one, of `--syslog-target`.
    syslog_target: Syslog,
    /// Facility for both; without one each has its own.
    facility: Option<u8>,
    program: String,
    patterns: [Pattern; 3],
    started_ms: u64,
}

/// The process's log.
pub struct Vlog {
    inner: Mutex<Inner>,
    sequence: AtomicU64,
    /// Messages logged, by severity.
    logged: [AtomicU64; SEVERITIES.len()],
}

static VLOG: OnceLock<Vlog> = OnceLock::new();

/// The log, created at the first call, which also installs it for the `log` macros.
pub fn vlog() -> &'static Vlog {
    let vlog = VLOG.get_or_init(|| Vlog {
        inner: Mutex::new(Inner {
            levels: MODULES.iter().map(|m| (*m, [LevelFilter::Info; 3])).collect(),
            limiters: BTreeMap::new(),
            unlimited: BTreeSet::new(),
            path: None,
            file: None,
            syslog: Syslog::local(),
            syslog_target: Syslog::Null,
            facility: None,
            program: "sluiced".to_string(),
            patterns: DEFAULT_PATTERNS.map(|p| Pattern::parse(p).unwrap_or_default()),
            started_ms: sys::clock::machine_us() / 1000,
        }),
        sequence: AtomicU64::new(0),
        logged: Default::default(),
    });
    // A second call finds the logger set.
    let _ = log::set_logger(vlog);
    vlog
}

/// The level of that name (`off`, `emer`, `err`, `warn`, `info`, `dbg`).
fn level(name: &str) -> Option<LevelFilter> {
    Some(match name.to_ascii_lowercase().as_str() {
        "off" => LevelFilter::Off,
        "emer" | "err" => LevelFilter::Error,
        "warn" => LevelFilter::Warn,
        "info" => LevelFilter::Info,
        "dbg" => LevelFilter::Debug,
        _ => return None,
    })
}

fn level_name(l: LevelFilter) -> &'static str {
    match l {
        LevelFilter::Off => "OFF",
        LevelFilter::Error => "ERR",
        LevelFilter::Warn => "WARN",
        LevelFilter::Info => "INFO",
        LevelFilter::Debug | LevelFilter::Trace => "DBG",
    }
}

impl Vlog {
    /// The program name in syslog.
    pub fn set_program(&self, name: &str) {
        lock(&self.inner).program = name.to_string();
        self.refresh_max();
    }

    /// Sets levels: `[MODULE][:DESTINATION][:LEVEL]` in any order, separated by colons, commas or blanks;
    /// `any` means all. Default level: debug.
    pub fn set(&self, spec: &str) -> Result<(), String> {
        let mut module = None;
        let mut destination = None;
        let mut wanted = None;
        if spec.split(':').next().is_some_and(|word| word.eq_ignore_ascii_case("pattern")) {
            return self.set_pattern(spec);
        }
        let (word, name) = spec.split_once(':').unwrap_or((spec, ""));
        if word.eq_ignore_ascii_case("facility") {
            let found = syslog::facility(name).ok_or("invalid facility")?;
            lock(&self.inner).facility = Some(found);
            return Ok(());
        }
        for word in spec.split([':', ',', ' ']).filter(|w| !w.is_empty() && !w.eq_ignore_ascii_case("any")) {
            let lower = word.to_ascii_lowercase();
            if let Some(d) = DESTINATIONS.iter().position(|d| *d == lower) {
                destination = Some(d);
            } else if let Some(l) = level(word) {
                wanted = Some(l);
            } else if let Some(m) = MODULES.iter().find(|m| **m == lower) {
                module = Some(*m);
            } else {
                return Err(format!("no destination, level, or module \"{word}\""));
            }
        }
        let wanted = wanted.unwrap_or(LevelFilter::Debug);
        let mut inner = lock(&self.inner);
        for (name, levels) in &mut inner.levels {
            if module.is_none_or(|m| m == *name) {
                let all = 0..DESTINATIONS.len();
                all.filter(|d| destination.is_none_or(|w| w == *d)).for_each(|d| levels[d] = wanted);
            }
        }
        drop(inner);
        self.refresh_max();
        Ok(())
    }

    /// Sends syslog lines by a method: `libc` (the local daemon), `null`, `unix:FILE` or `udp:IP:PORT`.
    ///
    /// # Errors
    /// It is no such method.
    pub fn set_syslog_method(&self, method: &str) -> Result<(), String> {
        lock(&self.inner).syslog = Syslog::parse(method)?;
        Ok(())
    }

    /// Sends them to this UDP port, too, in the form of RFC 5424.
    ///
    /// # Errors
    /// It is not `IP:PORT`.
    pub fn set_syslog_target(&self, target: &str) -> Result<(), String> {
        lock(&self.inner).syslog_target = Syslog::target(target)?;
        Ok(())
    }

    /// `PATTERN:destination:pattern`.
    fn set_pattern(&self, spec: &str) -> Result<(), String> {
        let mut words = spec.splitn(3, ':').skip(1);
        let (Some(destination), Some(pattern)) = (words.next(), words.next()) else {
            return Err(format!("{spec}: give PATTERN:destination:pattern"));
        };
        let chosen = |d: usize| {
            destination.eq_ignore_ascii_case("any") || destination.eq_ignore_ascii_case(DESTINATIONS[d])
        };
        let chosen: Vec<usize> = (0..DESTINATIONS.len()).filter(|d| chosen(*d)).collect();
        if chosen.is_empty() {
            return Err(format!("no destination \"{destination}\""));
        }
        let pattern = Pattern::parse(pattern)?;
        let patterns = &mut lock(&self.inner).patterns;
        chosen.into_iter().for_each(|d| patterns[d] = pattern.clone());
        Ok(())
    }

    /// Enables or disables the rate limits of these modules, or of all if none is named.
    ///
    /// # Errors
    /// Unknown module.
    pub fn set_rate_limit(&self, modules: &[impl AsRef<str>], on: bool) -> Result<(), String> {
        let known = |name: &str| {
            MODULES.iter().copied().find(|m| *m == name).ok_or_else(|| format!("{name}: no such module"))
        };
        let named: Vec<_> = modules.iter().map(|name| known(name.as_ref())).collect::<Result<_, _>>()?;
        let unlimited = &mut lock(&self.inner).unlimited;
        for module in MODULES.iter().filter(|m| named.is_empty() || named.contains(m)) {
            if on {
                unlimited.remove(module);
            } else {
                unlimited.insert(module);
            }
        }
        Ok(())
    }

    /// The table of `vlog/list`.
    pub fn list(&self) -> String {
        let mut out = String::from(
            "                 console    syslog    file\n                 -------    ------    ------\n",
        );
        for (name, l) in &lock(&self.inner).levels {
            let (c, s, f) = (level_name(l[CONSOLE]), level_name(l[SYSLOG]), level_name(l[FILE]));
            let _ = writeln!(out, "{name:<16}  {c:>4}       {s:>4}       {f:>4}");
        }
        out
    }

    /// Starts to log into a file, appending.
    pub fn open_file(&self, path: &Path) -> std::io::Result<()> {
        let file = OpenOptions::new().create(true).append(true).mode(sys::local::FILE_MODE).open(path)?;
        let mut inner = lock(&self.inner);
        (inner.path, inner.file) = (Some(path.to_path_buf()), Some(file));
        drop(inner);
        log::info!(target: "vlog", "opened log file {}", path.display());
        Ok(())
    }

    /// Reopens the log file, after it was moved away.
    pub fn reopen(&self) -> Result<(), String> {
        let Some(path) = lock(&self.inner).path.clone() else {
            return Err("Logging to file not configured".to_string());
        };
        log::info!(target: "vlog", "closing log file");
        self.open_file(&path).map_err(|e| format!("{}: cannot open the log file: {e}", path.display()))
    }

    /// Closes the log file until [`Vlog::reopen`].
    pub fn close(&self) {
        log::info!(target: "vlog", "closing log file");
        lock(&self.inner).file = None;
    }

    /// Messages logged since the start, by severity.
    pub fn logged(&self) -> [(&'static str, u64); 4] {
        std::array::from_fn(|n| (SEVERITIES[n], self.logged[n].load(Ordering::Relaxed)))
    }

    /// The log file, if there is one.
    pub fn file(&self) -> Option<PathBuf> {
        lock(&self.inner).path.clone()
    }

    /// The patterns of lines, in the conversions of `vlog/set PATTERN`.
    pub fn list_patterns(&self) -> String {
        let patterns = lock(&self.inner).patterns.clone();
        let rows = [
            ("", "prefix", "format"),
            ("", "------", "------"),
            ("SYSLOG", "<%B>%A:", patterns[SYSLOG].text()),
            ("CONSOLE", "none", patterns[CONSOLE].text()),
            ("FILE", "none", patterns[FILE].text()),
        ];
        rows.iter().map(|(name, prefix, format)| format!("{name:<8} {prefix:<33} {format}\n")).collect()
    }

    /// Whether some destination takes messages of the module at this level. Costs one load if no module logs them.
    pub fn wants(&self, module: &str, level: LevelFilter) -> bool {
        let of_module = || lock(&self.inner).levels.get(module).copied().unwrap_or([LevelFilter::Info; 3]);
        level <= log::max_level() && of_module().iter().any(|most| level <= *most)
    }

    fn refresh_max(&self) {
        let max = lock(&self.inner).levels.values().flatten().copied().max().unwrap_or(LevelFilter::Off);
        log::set_max_level(max);
    }
}

impl Inner {
    /// Whether to emit a message of the module, and the number suppressed since the last.
    fn admit(&mut self, module: &str, now_ms: u64) -> Option<u64> {
        if self.unlimited.contains(module) {
            return Some(0);
        }
        let l = self.limiters.entry(module.to_string()).or_insert(Limiter {
            tokens: BURST,
            filled_ms: now_ms,
            dropped: 0,
        });
        let earned = now_ms.saturating_sub(l.filled_ms) * RATE_PER_S / 1000;
        if earned > 0 {
            l.tokens = (l.tokens + earned).min(BURST);
            l.filled_ms = now_ms;
        }
        if l.tokens == 0 {
            l.dropped += 1;
            return None;
        }
        l.tokens -= 1;
        Some(std::mem::take(&mut l.dropped))
    }
}

impl Log for Vlog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.wants(metadata.target(), metadata.level().to_level_filter())
    }

    fn log(&self, record: &Record<'_>) {
        let module = record.target();
        let mut inner = lock(&self.inner);
        let levels = inner.levels.get(module).copied().unwrap_or([LevelFilter::Info; 3]);
        let wanted = |d: usize| record.level() <= levels[d];
        if !(0..DESTINATIONS.len()).any(wanted) {
            return;
        }
        let Some(dropped) = inner.admit(module, sys::clock::machine_us() / 1000) else { return };
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let severity = (record.level() as usize).saturating_sub(1).min(SEVERITIES.len() - 1);
        self.logged[severity].fetch_add(1, Ordering::Relaxed);
        let name = level_name(record.level().to_level_filter());
        let mut text = escaped(&sys::os_text(record.args()));
        if dropped > 0 {
            let _ = write!(text, " ({dropped} messages of this module were left out before)");
        }
        let thread = std::thread::current();
        let line = Line {
            program: &inner.program,
            module,
            level: name,
            facility: inner.facility.unwrap_or(syslog::DAEMON),
            message: &text,
            thread: thread.name().filter(|name| *name != "main").unwrap_or(""),
            sequence,
            wall_ms: sys::clock::wall_ms(),
            uptime_ms: (sys::clock::machine_us() / 1000).saturating_sub(inner.started_ms),
        };
        let lines: [Option<String>; 3] =
            std::array::from_fn(|d| wanted(d).then(|| inner.patterns[d].render(&line)));
        // Not rendered without a target.
        let has_target = wanted(SYSLOG) && !matches!(inner.syslog_target, Syslog::Null);
        let for_target = has_target.then(|| Pattern::parse(TARGET_PATTERN).unwrap_or_default().render(&line));
        let [console, syslog, file] = lines;
        // A log that cannot be written must not stop the switch.
        if let Some(line) = console {
            let _ = std::io::stderr().write_all((line + "\n").as_bytes());
        }
        if let Some(line) = syslog {
            let priority = |default| syslog::priority(inner.facility.unwrap_or(default), name);
            let tag = format!("{}: ", inner.program);
            for part in line.split('\n').filter(|part| !part.is_empty()) {
                inner.syslog.send(priority(syslog::DAEMON), &tag, part);
            }
            if let Some(line) = for_target {
                inner.syslog_target.send(priority(syslog::LOCAL0), "", &line);
            }
        }
        if let (Some(line), Some(file)) = (file, &mut inner.file) {
            let _ = file.write_all((line + "\n").as_bytes());
        }
    }

    fn flush(&self) {}
}

/// A message, safe for terminals: control characters other than ends of lines are escaped as in JSON. As in OVS, a
/// message of several lines keeps them, without empty ones at its end.
fn escaped(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for c in message.trim_end_matches('\n').chars() {
        match c {
            '\n' => out.push('\n'),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// Year, month, day and day of the year of days since 1970 (civil calendar from days: H. Hinnant's algorithm).
fn civil(days: i64) -> (i64, u32, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    // Counted from the first of March.
    let shifted_day = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * shifted_day + 2) / 153;
    let day = shifted_day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let before_march = 59 + i64::from(is_leap);
    let day_of_year = if month > 2 { shifted_day + before_march } else { shifted_day - 306 } + 1;
    (year, month as u32, day as u32, day_of_year as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sources of all crates but this one, with their paths.
    fn sources() -> Vec<(PathBuf, String)> {
        let mut dirs = vec![Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()];
        let mut all = Vec::new();
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                if path.extension().is_none_or(|e| e != "rs")
                    || path.components().any(|part| part.as_os_str() == "vlog")
                    || path.components().any(|part| part.as_os_str() == "upcall-bench")
                {
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap().replace("(target", " target");
                all.push((path, text));
            }
        }
        all
    }

    /// Levels do not apply to an unlisted module: its lines would go to all destinations.
    #[test]
    fn modules_of_all_crates_are_listed() {
        let mut seen = 0;
        for (path, text) in sources() {
            for rest in text.split(" target: \"").skip(1) {
                let module = rest.split('"').next().unwrap();
                assert!(MODULES.contains(&module), "{module} in {}", path.display());
                seen += 1;
            }
        }
        assert!(seen > 100, "{seen}");
    }

    /// A module that is set to `dbg` and writes nothing would mislead.
    #[test]
    fn a_module_has_lines_or_is_told_to_have_none() {
        let all: String = sources().into_iter().map(|(_, text)| text).collect();
        let doc = include_str!("../../../docs/log.md");
        let (writing, silent) = doc.split_once("## Modules that never log").unwrap();
        for module in MODULES.iter().filter(|module| **module != "vlog") {
            let names = [format!(" target: \"{module}\""), format!(": &str = \"{module}\";")];
            let has_lines = names.iter().any(|name| all.contains(name));
            let told = [writing, silent].map(|part| part.contains(&format!("`{module}`")));
            assert_eq!(told, [has_lines, !has_lines], "{module}");
        }
    }

    #[test]
    fn modules_are_distinct_and_in_order() {
        assert!(MODULES.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(["vconn", "ofp_actions", "netdev_dummy", "ct_dpif"].iter().all(|m| MODULES.contains(m)));
    }

    #[test]
    fn days_of_the_calendar() {
        assert_eq!(civil(0), (1970, 1, 1, 1));
        assert_eq!(civil(59), (1970, 3, 1, 60));
        assert_eq!(civil(11_016), (2000, 2, 29, 60));
        assert_eq!(civil(11_017), (2000, 3, 1, 61));
        assert_eq!(civil(20_412), (2025, 11, 20, 324));
        assert_eq!(civil(20_453), (2025, 12, 31, 365));
        assert_eq!(civil(20_781), (2026, 11, 24, 328));
    }

    #[test]
    fn control_characters_are_escaped() {
        for (message, line) in [
            ("plain é text", "plain é text"),
            ("a\tb\r\nc", "a\\tb\\r\nc"),
            ("two\n lines\n\n", "two\n lines"),
            ("\x1b[1m\x07\x7f\u{9b}", "\\u001b[1m\\u0007\\u007f\\u009b"),
        ] {
            assert_eq!(escaped(message), line);
        }
    }

    #[test]
    fn patterns_are_set_by_destination() {
        let v = vlog();
        for spec in ["PATTERN:syslog:%c|%m", "pattern:SYSLOG:%m", "PATTERN:any:%05N|%m"] {
            v.set(spec).unwrap();
            let pattern = spec.splitn(3, ':').nth(2).unwrap();
            let row = v.list_patterns().lines().find(|l| l.starts_with("SYSLOG")).unwrap().to_string();
            assert!(row.ends_with(pattern), "{row}");
        }
        for spec in ["PATTERN:nowhere:%m", "PATTERN:file", "PATTERN:file:%z"] {
            assert!(v.set(spec).is_err(), "{spec}");
        }
    }

    /// Lines as those of ovs-ofctl 3.1 with the same options.
    #[test]
    fn syslog_daemons_get_lines() {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let address = udp.local_addr().unwrap().to_string();
        let line = |text: &str| {
            log::log!(target: "stream_replay", log::Level::Warn, "{text}");
            let mut buf = [0; 500];
            // Other tests may log, too.
            loop {
                let len = udp.recv(&mut buf).unwrap();
                let line = String::from_utf8_lossy(&buf[..len]).into_owned();
                if line.contains(text) {
                    return line;
                }
            }
        };
        let v = vlog();
        v.set("stream_replay:syslog:warn").unwrap();
        v.set_syslog_method(&format!("udp:{address}")).unwrap();
        assert!(line("one").starts_with("<28>"), "daemon, warning");
        v.set("FACILITY:local3").unwrap();
        assert!(line("two").starts_with("<156>"));
        v.set_syslog_method("null").unwrap();
        v.set_syslog_target(&address).unwrap();
        let told = line("three");
        assert!(told.starts_with("<156>1 2") && told.ends_with(" stream_replay - \u{feff}three"), "{told}");
        lock(&v.inner).facility = None;
        assert!(line("four").starts_with("<132>1 2"), "local0");
        v.set_syslog_method("libc").unwrap();
        lock(&v.inner).syslog_target = Syslog::Null;
        for (method, why) in
            [("bogus", "unsupported syslog method 'bogus'"), ("udp:x", "give udp:IP:PORT"), ("", "method ''")]
        {
            assert!(v.set_syslog_method(method).unwrap_err().contains(why), "{method}");
        }
        assert!(v.set_syslog_target("1.2").unwrap_err().contains("give IP:PORT"));
        assert_eq!(v.set("FACILITY:bogus"), Err("invalid facility".to_string()));
    }

    #[test]
    fn a_level_is_wanted_by_module() {
        let v = vlog();
        v.set("vconn:file:dbg").unwrap();
        assert!(v.wants("vconn", LevelFilter::Debug) && !v.wants("dpif", LevelFilter::Debug));
        assert!(v.wants("dpif", LevelFilter::Info));
        v.set("vconn:file:info").unwrap();
        assert!(!v.wants("vconn", LevelFilter::Debug));
    }

    #[test]
    fn levels_are_set_by_word_in_any_order() {
        let v = vlog();
        v.set("bridge:file:dbg").unwrap();
        let line = v.list().lines().find(|l| l.starts_with("bridge")).unwrap().to_string();
        assert!(line.contains("DBG") && line.contains("INFO"), "{line}");
        assert!(v.set("nonsense").unwrap_err().contains("nonsense"));
    }
}
