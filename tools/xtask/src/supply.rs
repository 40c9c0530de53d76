//! The supply check: licences, sources, banned libraries and duplicate versions, as `deny.toml` allows them.
//!
//! It does the work of cargo-deny, from `cargo metadata` and Cargo.lock, because not every machine has
//! cargo-deny; the policy stays in cargo-deny's format. It ignores advisories, which need a database from the
//! network. An exception that no longer applies is an error, so the lists only shrink.

mod licence;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use toml::Table;

use crate::workspace::{DepKind, Member, Workspace, list, metadata, text};

/// A package in the dependency graph.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    /// Name.
    pub(crate) name: String,
    /// Version.
    pub(crate) version: String,
    /// SPDX expression, if its manifest has one.
    pub(crate) licence: Option<String>,
}

/// A package in Cargo.lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Locked {
    /// Name.
    pub(crate) name: String,
    /// Version.
    pub(crate) version: String,
    /// Its source; `None` is a path inside the workspace.
    pub(crate) source: Option<String>,
    /// Whether its contents are pinned.
    pub(crate) has_checksum: bool,
}

/// The contents of deny.toml.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    targets: Vec<String>,
    licences: Vec<String>,
    licence_exceptions: Vec<(String, Vec<String>)>,
    skip: Vec<String>,
    banned: Vec<(String, String)>,
    registries: Vec<String>,
    git: Vec<String>,
}

/// Runs the whole check on a workspace.
///
/// # Errors
/// If a file cannot be read or parsed.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let read = |name: &str| {
        std::fs::read_to_string(workspace.root.join(name)).with_context(|| format!("cannot read {name}"))
    };
    let policy = parse_policy(&read("deny.toml")?)?;
    let lock = parse_lock(&read("Cargo.lock")?)?;
    let mut packages = BTreeSet::new();
    for target in &policy.targets {
        packages.extend(parse_packages(&metadata(&workspace.root, &["--filter-platform", target])?)?);
    }
    let packages: Vec<Package> = packages.into_iter().collect();
    let mut problems = check_licences(&packages, &policy);
    problems.extend(check_sources(&lock, &policy));
    problems.extend(check_bans(&packages, &policy));
    problems.extend(check_duplicates(&packages, &policy));
    problems.extend(fuzz_lock_is_behind(&workspace.members, &read("tools/fuzz/Cargo.lock")?)?);
    Ok(problems)
}

/// Whether the fuzzer's own lock file, which is easily forgotten, lacks dependencies of the crates.
///
/// # Errors
/// If it is not TOML.
pub(crate) fn fuzz_lock_is_behind(members: &[Member], lock: &str) -> Result<Vec<String>> {
    let table: Table = lock.parse().context("tools/fuzz/Cargo.lock is no valid TOML")?;
    let mut problems = Vec::new();
    for package in table.get("package").and_then(toml::Value::as_array).into_iter().flatten() {
        let name = package.get("name").and_then(toml::Value::as_str).unwrap_or_default();
        let Some(member) = members.iter().find(|m| m.name == name && package.get("source").is_none()) else {
            continue;
        };
        let listed = package.get("dependencies").and_then(toml::Value::as_array);
        // An entry is a name, followed by a version if there are several.
        let listed: BTreeSet<&str> =
            listed.into_iter().flatten().filter_map(|d| d.as_str()?.split(' ').next()).collect();
        for dep in member.deps.iter().filter(|d| d.kind != DepKind::Dev) {
            if !listed.contains(dep.name.as_str()) {
                problems.push(format!(
                    "tools/fuzz/Cargo.lock does not know that {name} depends on {}: run `cargo update --workspace` in tools/fuzz/",
                    dep.name
                ));
            }
        }
    }
    Ok(problems)
}

/// Checks the fuzzer's own lock file: licences, sources and bans. It is built by `cargo xtask fuzz`
/// only and not a part of the switch; libFuzzer itself has LLVM's former licence (NCSA).
///
/// # Errors
/// If a file cannot be read or parsed.
pub(crate) fn check_fuzzer(root: &Path) -> Result<Vec<String>> {
    let read =
        |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"));
    let mut policy = parse_policy(&read("deny.toml")?)?;
    policy.licence_exceptions.push(("libfuzzer-sys".to_owned(), vec!["NCSA".to_owned()]));
    let lock = parse_lock(&read("tools/fuzz/Cargo.lock")?)?;
    let mut packages = BTreeSet::new();
    for target in &policy.targets {
        packages
            .extend(parse_packages(&metadata(&root.join("tools/fuzz"), &["--filter-platform", target])?)?);
    }
    let packages: Vec<Package> = packages.into_iter().collect();
    let mut problems = check_licences(&packages, &policy);
    problems.extend(check_sources(&lock, &policy));
    problems.extend(check_bans(&packages, &policy));
    Ok(problems)
}

/// Parses deny.toml. Rejects unknown keys: an unenforced rule would be worse than none.
///
/// # Errors
/// If it is not TOML, has an unknown key, or a value of another type.
pub(crate) fn parse_policy(page: &str) -> Result<Policy> {
    let table: Table = page.parse().context("deny.toml is no valid TOML")?;
    let known: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("graph", &["targets"][..]),
        ("licenses", &["allow", "exceptions"][..]),
        ("bans", &["multiple-versions", "skip", "deny"][..]),
        ("sources", &["unknown-registry", "unknown-git", "allow-registry", "allow-git"][..]),
    ]);
    for (section, value) in &table {
        let keys =
            known.get(section.as_str()).with_context(|| format!("deny.toml: [{section}] is not known"))?;
        let value = value.as_table().with_context(|| format!("deny.toml: {section} is not a section"))?;
        if let Some(key) = value.keys().find(|k| !keys.contains(&k.as_str())) {
            bail!("deny.toml: [{section}] {key} is not enforced by tools/xtask/src/supply.rs");
        }
    }
    for (section, key) in
        [("bans", "multiple-versions"), ("sources", "unknown-registry"), ("sources", "unknown-git")]
    {
        let value = table.get(section).and_then(|s| s.get(key)).and_then(toml::Value::as_str);
        if value != Some("deny") {
            bail!("deny.toml: [{section}] {key} must be \"deny\"");
        }
    }
    let mut policy = Policy {
        targets: strings(&table, "graph", "targets")?,
        licences: strings(&table, "licenses", "allow")?,
        registries: strings(&table, "sources", "allow-registry")?,
        git: strings(&table, "sources", "allow-git")?,
        ..Policy::default()
    };
    if policy.targets.is_empty() {
        bail!("deny.toml: [graph] targets is empty: nothing would be checked");
    }
    for entry in entries(&table, "licenses", "exceptions")? {
        let name = field(entry, "crate")?;
        let allow = entry.get("allow").and_then(toml::Value::as_array);
        let allow =
            allow.with_context(|| format!("deny.toml: the exception of {name} has no list `allow`"))?;
        let allow = allow.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
        policy.licence_exceptions.push((name, allow));
    }
    for entry in entries(&table, "bans", "skip")? {
        field(entry, "reason")?;
        policy.skip.push(field(entry, "crate")?);
    }
    for entry in entries(&table, "bans", "deny")? {
        policy.banned.push((field(entry, "crate")?, field(entry, "reason")?));
    }
    Ok(policy)
}

fn entries<'a>(table: &'a Table, section: &str, key: &str) -> Result<&'a [toml::Value]> {
    let Some(value) = table.get(section).and_then(|s| s.get(key)) else { return Ok(&[]) };
    let list = value.as_array().with_context(|| format!("deny.toml: [{section}] {key} is not a list"))?;
    Ok(list)
}

fn strings(table: &Table, section: &str, key: &str) -> Result<Vec<String>> {
    entries(table, section, key)?
        .iter()
        .map(|v| v.as_str().map(str::to_owned))
        .collect::<Option<_>>()
        .with_context(|| format!("deny.toml: [{section}] {key} must be a list of texts"))
}

fn field(entry: &toml::Value, key: &str) -> Result<String> {
    let value = entry.get(key).and_then(toml::Value::as_str);
    Ok(value.with_context(|| format!("deny.toml: the entry `{entry:?}` has no text `{key}`"))?.to_owned())
}

/// Reads Cargo.lock.
///
/// # Errors
/// If it is not in cargo's format.
pub(crate) fn parse_lock(page: &str) -> Result<Vec<Locked>> {
    let table: Table = page.parse().context("Cargo.lock is no valid TOML")?;
    let packages =
        table.get("package").and_then(toml::Value::as_array).context("Cargo.lock lists no package")?;
    let read =
        |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    packages
        .iter()
        .map(|p| {
            Ok(Locked {
                name: read(p, "name").context("Cargo.lock: a package without a name")?,
                version: read(p, "version").context("Cargo.lock: a package without a version")?,
                source: read(p, "source"),
                has_checksum: read(p, "checksum").is_some(),
            })
        })
        .collect()
}

/// Selects the packages in the resolved graph of a reply of `cargo metadata`.
///
/// # Errors
/// If a field is missing.
pub(crate) fn parse_packages(meta: &Value) -> Result<Vec<Package>> {
    let resolve = meta.get("resolve").context("no `resolve` in cargo's metadata")?;
    let used = list(resolve, "nodes")?.iter().map(|n| text(n, "id")).collect::<Result<BTreeSet<_>>>()?;
    let mut packages = Vec::new();
    for package in list(meta, "packages")? {
        if used.contains(text(package, "id")?) {
            packages.push(Package {
                name: text(package, "name")?.to_owned(),
                version: text(package, "version")?.to_owned(),
                licence: package.get("license").and_then(Value::as_str).map(str::to_owned),
            });
        }
    }
    Ok(packages)
}

/// The licences allowed for each package must satisfy its licence expression.
pub(crate) fn check_licences(packages: &[Package], policy: &Policy) -> Vec<String> {
    let mut problems = Vec::new();
    let allowed: Vec<&str> = policy.licences.iter().map(String::as_str).collect();
    for (name, _) in &policy.licence_exceptions {
        let needed = packages
            .iter()
            .filter(|p| p.name == *name)
            .any(|p| p.licence.as_deref().is_some_and(|l| licence::satisfied(l, &allowed) != Ok(true)));
        if !needed {
            problems
                .push(format!("deny.toml: the licence exception of `{name}` is no longer needed: remove it"));
        }
    }
    for package in packages {
        let Some(expression) = &package.licence else {
            problems.push(format!("{} {} names no licence", package.name, package.version));
            continue;
        };
        let mut allowed = allowed.clone();
        for (name, more) in &policy.licence_exceptions {
            if *name == package.name {
                allowed.extend(more.iter().map(String::as_str));
            }
        }
        match licence::satisfied(expression, &allowed) {
            Ok(true) => {}
            Ok(false) => problems.push(format!(
                "{} {}: licence `{expression}` is not allowed by deny.toml",
                package.name, package.version
            )),
            Err(why) => problems.push(format!(
                "{} {}: licence `{expression}` is no SPDX expression: {why}",
                package.name, package.version
            )),
        }
    }
    problems
}

/// Each package must come from an allowed registry, with its checksum, or from a path of the workspace.
pub(crate) fn check_sources(lock: &[Locked], policy: &Policy) -> Vec<String> {
    let mut problems = Vec::new();
    for package in lock {
        let what = format!("Cargo.lock: {} {}", package.name, package.version);
        let Some(source) = &package.source else { continue };
        if let Some(registry) = source.strip_prefix("registry+") {
            if !policy.registries.iter().any(|r| r == registry) {
                problems.push(format!(
                    "{what} comes from the registry {registry}, which deny.toml does not allow"
                ));
            } else if !package.has_checksum {
                problems.push(format!("{what} has no checksum: its contents are not pinned"));
            }
        } else {
            let git = source.strip_prefix("git+").and_then(|s| s.split(['?', '#']).next());
            if !git.is_some_and(|g| policy.git.iter().any(|allowed| allowed == g)) {
                problems.push(format!("{what} comes from {source}, which deny.toml does not allow"));
            }
        }
    }
    problems
}

/// No banned library may be in the graph.
pub(crate) fn check_bans(packages: &[Package], policy: &Policy) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages {
        for (name, reason) in policy.banned.iter().filter(|(name, _)| *name == package.name) {
            problems.push(format!("{name} {} is banned by deny.toml: {reason}", package.version));
        }
    }
    problems
}

/// No library may be in the graph in two versions, except those skipped in deny.toml.
pub(crate) fn check_duplicates(packages: &[Package], policy: &Policy) -> Vec<String> {
    let mut problems = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    for skip in &policy.skip {
        let applies =
            versions.iter().any(|(name, all)| all.len() > 1 && all.iter().any(|v| is_skipped(skip, name, v)));
        if !applies {
            problems.push(format!(
                "deny.toml: [bans] skip `{skip}` names no duplicate as `crate@version`: remove it"
            ));
        }
    }
    for (name, all) in versions {
        let left: Vec<&str> =
            all.into_iter().filter(|v| !policy.skip.iter().any(|s| is_skipped(s, name, v))).collect();
        if left.len() > 1 {
            problems.push(format!(
                "{name} is in the tree in versions {}: bring them together (see `cargo tree -i {name}`) or skip \
                 the older one in deny.toml with its reason",
                left.join(" and ")
            ));
        }
    }
    problems
}

/// Whether `skip`, a `crate@version`, matches this version: the whole or its first numbers.
fn is_skipped(skip: &str, name: &str, version: &str) -> bool {
    skip.split_once('@').is_some_and(|(skip_name, prefix)| {
        let rest = version.strip_prefix(prefix);
        skip_name == name && !prefix.is_empty() && rest.is_some_and(|r| r.is_empty() || r.starts_with('.'))
    })
}
