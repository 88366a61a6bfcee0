use std::fs;

use serde_json::Value;

use super::{each_object, text_objects};

fn names(objects: &[Value]) -> Vec<String> {
    objects
        .iter()
        .map(|o| {
            format!(
                "{}/{}",
                o["kind"].as_str().unwrap(),
                o["metadata"]["name"].as_str().unwrap()
            )
        })
        .collect()
}

fn read(text: &str) -> Result<Vec<String>, String> {
    let mut objects = vec![];
    let mut take = |o| {
        objects.push(o);
        Ok(())
    };
    text_objects("f", text, &mut take).map_err(|e| format!("{e:#}"))?;
    Ok(names(&objects))
}

#[test]
fn documents_and_lists_are_taken_apart() {
    let text = "\
# only a comment
---
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {on: on}}
---
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: b}}
- {apiVersion: v1, kind: Pod, metadata: {name: c}}
---
apiVersion: v1
kind: PodList
items:
- metadata: {name: d}
---
apiVersion: v1
kind: AllowList
metadata: {name: e}
...
";
    assert_eq!(
        read(text).unwrap(),
        ["Pod/a", "Node/b", "Pod/c", "Pod/d", "AllowList/e"]
    );
    assert_eq!(read("").unwrap(), [""; 0]);
}

#[test]
fn json_reads_the_same_whatever_the_extension() {
    let list = r#"{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]}"#;
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}}"#;
    assert_eq!(read(&format!("{list}\n{pod}")).unwrap(), ["Pod/a", "Pod/b"]);
    // Starts like JSON, is YAML.
    assert_eq!(
        read("{apiVersion: v1, kind: Pod, metadata: {name: y}}\n---\n").unwrap(),
        ["Pod/y"]
    );
}

#[test]
fn errors_say_where_and_what() {
    let good = "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n";
    for (text, place, what) in [
        (format!("{good}kind: [\n"), "f, document 2", "not valid YAML"),
        (format!("{good}kind: a\nkind: b\n"), "f, document 2", "duplicate"),
        (format!("{good}- 1\n"), "f, document 2", "not a Kubernetes object"),
        (format!("{good}kind: Pod\n"), "f, document 2", "apiVersion is missing"),
        ("apiVersion: v1\n".to_owned(), "f, document 1", "kind is missing"),
        (
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod}, {kind: Pod}]\n".to_owned(),
            "f, document 1: item 2",
            "apiVersion is missing",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: []}]\n".to_owned(),
            "f, document 1: item 1",
            "within a list",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.starts_with(place) && error.contains(what), "{text:?}: {error}");
    }
}

#[test]
fn what_takes_an_object_fails_with_its_place() {
    let mut take = |_| anyhow::bail!("no");
    let text = r#"{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]}"#;
    let error = text_objects("f", text, &mut take).unwrap_err();
    assert_eq!(format!("{error:#}"), "f, document 1: item 1: no");
}

#[test]
fn folders_are_read_in_the_order_of_names() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let pod = |name: &str| format!(r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}"}}}}"#);
    write("b.yaml", &pod("b"));
    write("a/z.json", &pod("z"));
    write("c.YML", &pod("c"));
    write("notes.txt", "not for us");
    write("..data/b.yaml", &pod("again"));
    let mut objects = vec![];
    each_object(&[folder.path().to_owned()], &mut |_, o| {
        objects.push(o);
        Ok(())
    })
    .unwrap();
    assert_eq!(names(&objects), ["Pod/z", "Pod/b", "Pod/c"]);

    let fail = |path: &str| {
        let path = folder.path().join(path);
        format!("{:#}", each_object(&[path], &mut |_, _| Ok(())).unwrap_err())
    };
    assert!(fail("missing.yaml").contains("missing.yaml"));
    write("d/bad.json", "{\"kind\": 1,}");
    let error = fail("d");
    assert!(error.contains("bad.json, document 1: not valid JSON"), "{error}");
    write("e/readme.md", "");
    assert!(fail("e").contains("no .yaml"));
}

#[test]
fn files_without_an_object_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let nothing = [
        ("empty.yaml", ""),
        ("empty.json", " "),
        ("comment.yaml", "# nothing\n---\n"),
        ("list.yaml", "apiVersion: v1\nkind: List\nitems: []\n"),
        ("list.json", r#"{"apiVersion": "v1", "kind": "PodList", "items": []}"#),
    ]
    .map(|(name, text)| write(name, text));
    let mut files = nothing.to_vec();
    let error = format!("{:#}", each_object(&files, &mut |_, _| Ok(())).unwrap_err());
    assert!(
        error.starts_with("no Kubernetes object in ") && error.contains("list.json"),
        "{error}"
    );
    files.push(write("pod.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: a}}"));
    let mut from = vec![];
    let empty = each_object(&files, &mut |path, _| {
        from.push(path.to_owned());
        Ok(())
    });
    assert_eq!(empty.unwrap(), nothing);
    assert_eq!(from, files[5..]);
}

#[test]
fn more_nodes_than_the_parsers_default_limits_allow() {
    let many = "0,".repeat(250_001);
    let text = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: [{many}]\n");
    assert_eq!(read(&text).unwrap(), ["Pod/a"]);
}

#[test]
fn aliases_do_not_unfold_without_end() {
    let mut text =
        String::from("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..9 {
        let again = format!("*a{},", i - 1).repeat(10);
        text.push_str(&format!("a{i}: &a{i} [{again}]\n"));
    }
    let error = read(&text).unwrap_err();
    assert!(error.starts_with("f, document 1: not valid YAML"), "{error}");
}
