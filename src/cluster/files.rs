//! Kubernetes objects out of YAML and JSON files, as kubectl writes them: several documents in a file, `kind: List`
//! and typed lists (`PodList`). Knows the shape every object has (apiVersion, kind) and nothing about any kind.
//!
//! Objects are handed over one by one and not collected: a list of 5,000 slices is 30 MB of text and would be
//! several times that as a tree.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A file larger than this is a mistake (a list of 5,000 nodes with eight GPUs each is 30 MB).
const MAX_FILE: u64 = 512 << 20;
/// Folders in folders; a symlink may lead back up.
const MAX_DEPTH: usize = 16;
/// What a YAML document may hold: generous for `MAX_FILE` of slices.
const MAX_YAML_NODES: usize = 100_000_000;
/// What aliases may unfold to: room for some slices written once, and no gigabytes out of a few lines.
const MAX_REPLAYED: usize = 200_000;

/// Takes one object; its error is given the object's place.
pub type Take<'a> = dyn FnMut(Value) -> anyhow::Result<()> + 'a;

/// As [`Take`], with the file it is from.
pub type TakeFrom<'a> = dyn FnMut(&Path, Value) -> anyhow::Result<()> + 'a;

/// Reads files, and folders with all that is below them (`.yaml`, `.yml`, `.json`, in the order of their names), and
/// hands over every object in order. Returns the files that hold none: of a `kubectl get` that failed, say.
///
/// # Errors
/// With the file, the number of the document in it (and of the item in a list), and what is wrong there; and where no file
/// holds an object.
pub fn each_object(paths: &[PathBuf], take: &mut TakeFrom<'_>) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = vec![];
    for path in paths {
        let meta = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        if !meta.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        below(path, MAX_DEPTH, &mut files)?;
        if files.len() == before {
            bail!("{}: no .yaml, .yml or .json file in this folder", path.display());
        }
    }
    let (mut empty, all) = (vec![], files.len());
    for path in files {
        let mut any = false;
        file(&path, &mut |object| {
            any = true;
            take(&path, object)
        })?;
        if !any {
            empty.push(path);
        }
    }
    if empty.len() == all {
        let names: Vec<_> = empty.iter().take(8).map(|p| p.display().to_string()).collect();
        bail!("no Kubernetes object in {}", names.join(", "));
    }
    Ok(empty)
}

/// The files of a folder, sorted by name.
fn below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let Some(depth) = depth.checked_sub(1) else {
        bail!("{}: folders are nested deeper than {MAX_DEPTH}", folder.display());
    };
    let cannot = || format!("cannot read {}", folder.display());
    let mut entries = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>())
        .with_context(cannot)?;
    entries.sort();
    for path in entries {
        // A mounted ConfigMap holds everything twice, the second time in a hidden folder.
        if path.file_name().is_none_or(|n| n.to_string_lossy().starts_with('.')) {
            continue;
        }
        if path.is_dir() {
            below(&path, depth, found)?;
        } else if is(&path, &["yaml", "yml", "json"]) {
            found.push(path);
        }
    }
    Ok(())
}

fn is(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .is_some_and(|e| extensions.iter().any(|x| e.eq_ignore_ascii_case(x)))
}

fn file(path: &Path, take: &mut Take<'_>) -> anyhow::Result<()> {
    let cannot = || format!("cannot read {}", path.display());
    let size = std::fs::metadata(path).with_context(cannot)?.len();
    if size > MAX_FILE {
        bail!(
            "{}: {} MiB is more than is read ({})",
            path.display(),
            size >> 20,
            MAX_FILE >> 20
        );
    }
    let text = std::fs::read_to_string(path).with_context(cannot)?;
    let name = path.display().to_string();
    if is(path, &["json"]) {
        json(&name, &text, take)
    } else {
        text_objects(&name, &text, take)
    }
}

/// Objects of a text that may be YAML or JSON. `name` stands for the file in errors.
///
/// # Errors
/// As [`each_object`].
pub fn text_objects(name: &str, text: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
    // JSON is YAML, but its own parser is many times faster. (A text that merely starts like it is read as YAML.)
    let looks_json = text.trim_start().starts_with('{');
    if looks_json
        && serde_json::Deserializer::from_str(text)
            .into_iter::<&RawValue>()
            .all(|d| d.is_ok())
    {
        json(name, text, take)
    } else {
        yaml(name, text, take)
    }
}

fn yaml(name: &str, text: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * MAX_YAML_NODES,
            max_nodes: MAX_YAML_NODES,
            max_documents: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_total_comment_bytes: usize::MAX,
            max_reader_input_bytes: None,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED },
        // YAML 1.2: a label `on` or `y` is text.
        strict_booleans: true,
        with_snippet: false,
    };
    let mut reader = std::io::Cursor::new(text.as_bytes());
    for (i, document) in serde_saphyr::read_with_options::<_, Value>(&mut reader, options).enumerate() {
        let place = || format!("{name}, document {}", i + 1);
        let document = document.map_err(|e| anyhow::anyhow!("{}: not valid YAML: {e}", place()))?;
        whole(document, take).with_context(place)?;
    }
    Ok(())
}

fn whole(document: Value, take: &mut Take<'_>) -> anyhow::Result<()> {
    let Head { api_version, kind } = head(&document)?;
    let Some(of) = list_of(&kind, document.get("items").is_some_and(Value::is_array)) else {
        return take(document);
    };
    let mut document = document;
    let items = document.get_mut("items").map(Value::take);
    let Some(Value::Array(items)) = items else {
        return Ok(());
    };
    for (i, item) in items.into_iter().enumerate() {
        listed(item, of, &api_version, take).with_context(|| format!("item {}", i + 1))?;
    }
    Ok(())
}

/// The head of a document, and its items as text, so that they can be read one after the other.
#[derive(Deserialize)]
struct RawList<'a> {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

fn json(name: &str, text: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
    let documents = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    for (i, document) in documents.enumerate() {
        let place = || format!("{name}, document {}", i + 1);
        let document = document
            .map_err(|e| anyhow::anyhow!("{}: not valid JSON: {e}", place()))?
            .get();
        raw(document, take).with_context(place)?;
    }
    Ok(())
}

fn raw(document: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
    // Tells lists from objects without a tree of the whole; anything odd goes the slow way to its error.
    if let Ok(list) = serde_json::from_str::<RawList<'_>>(document)
        && let Some(of) = list_of(&list.kind, true)
    {
        for (i, item) in list.items.into_iter().enumerate() {
            let place = || format!("item {}", i + 1);
            let item = serde_json::from_str(item.get()).with_context(place)?;
            listed(item, of, &list.api_version, take).with_context(place)?;
        }
        return Ok(());
    }
    match serde_json::from_str(document)? {
        Value::Null => Ok(()),
        document => whole(document, take),
    }
}

struct Head {
    api_version: String,
    kind: String,
}

fn head(object: &Value) -> anyhow::Result<Head> {
    if !object.is_object() {
        bail!("not a Kubernetes object: needs apiVersion, kind and metadata");
    }
    let text = |field: &str| match object.get(field).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(anyhow::anyhow!("not a Kubernetes object: {field} is missing")),
    };
    Ok(Head {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
    })
}

/// What a list lists, empty where its items say so themselves. None: not a list.
fn list_of(kind: &str, has_items: bool) -> Option<&str> {
    has_items.then(|| kind.strip_suffix("List")).flatten()
}

/// Items of a typed list need not repeat their kind.
fn listed(mut item: Value, of: &str, api_version: &str, take: &mut Take<'_>) -> anyhow::Result<()> {
    if !of.is_empty()
        && let Some(fields) = item.as_object_mut()
    {
        fields.entry("kind").or_insert_with(|| of.into());
        fields.entry("apiVersion").or_insert_with(|| api_version.into());
    }
    let head = head(&item)?;
    if list_of(&head.kind, item.get("items").is_some_and(Value::is_array)).is_some() {
        bail!("a {} within a list is not read", head.kind);
    }
    take(item)
}

#[cfg(test)]
mod tests;
