//! What is found, and in which order.

use super::*;

type Tool<'t> = (&'t str, &'t str, &'t [&'t str]);

fn index<'t>(group: &str, tools: &[Tool<'t>]) -> Index {
    let documents = tools
        .iter()
        .map(|(name, description, parameters)| Document {
            name,
            title: "",
            description,
            parameters: parameters.iter().copied(),
        });
    Index::new(group, documents)
}

fn found(indexes: &[(&Index, &[Tool<'static>])], query: &str) -> Vec<&'static str> {
    let of: Vec<&Index> = indexes.iter().map(|(index, _)| *index).collect();
    let hits = search(&of, &Query::new(query), usize::MAX);
    hits.iter()
        .map(|hit| indexes[hit.index].1[hit.document].0)
        .collect()
}

const FILES: &[Tool<'static>] = &[
    (
        "list_directory",
        "Lists the files and folders in a directory.",
        &["path"],
    ),
    (
        "read_text_file",
        "Reads a file as text.",
        &["path", "head", "tail"],
    ),
    (
        "search_files",
        "Finds files whose name matches a pattern.",
        &["path", "pattern"],
    ),
    (
        "write_file",
        "Creates a file, or replaces its contents.",
        &["path", "content"],
    ),
];

const GITHUB: &[Tool<'static>] = &[
    (
        "createIssue",
        "Opens an issue in a repository.",
        &["owner", "repo", "title", "body"],
    ),
    (
        "getFileContents",
        "Reads a file or folder of a repository.",
        &["owner", "repo", "path"],
    ),
    (
        "listIssues",
        "Lists the issues of a repository.",
        &["owner", "repo", "labels"],
    ),
    (
        "search",
        "Searches code. Search, search and search again: files, files, files.",
        &["q"],
    ),
    (
        "searchIssues",
        "Searches issues and pull requests.",
        &["query", "sort"],
    ),
];

fn in_both(query: &str) -> Vec<&'static str> {
    let (files, github) = (index("files", FILES), index("github", GITHUB));
    found(&[(&files, FILES), (&github, GITHUB)], query)
}

#[test]
fn the_tool_that_fits_best_comes_first() {
    for (query, best) in [
        ("read a text file", "read_text_file"),
        ("how do I open a new issue?", "createIssue"),
        ("creating issues", "createIssue"),
        ("find files by pattern", "search_files"),
        ("repository file contents", "getFileContents"),
        ("labels", "listIssues"),
        ("github file", "getFileContents"),
        ("folders", "list_directory"),
    ] {
        assert_eq!(in_both(query).first(), Some(&best), "{query}");
    }
    assert_eq!(in_both("database"), [""; 0]);
    assert_eq!(in_both(" ?! "), [""; 0]);
}

#[test]
fn the_exact_name_comes_first_then_names_that_begin_with_the_query() {
    assert_eq!(
        in_both("search")[..3],
        ["search", "searchIssues", "search_files"]
    );
    for exact in [
        "search issues",
        "SEARCH_ISSUES",
        "searchIssues",
        "github__searchIssues",
    ] {
        assert_eq!(in_both(exact)[0], "searchIssues", "{exact}");
    }
    assert_eq!(in_both("github search")[..2], ["search", "searchIssues"]);
    assert_eq!(in_both("wr"), ["write_file"]);
    assert_eq!(
        in_both("dir"),
        ["list_directory"],
        "a word that begins with it"
    );
}

#[test]
fn a_word_of_a_name_outweighs_its_repetition_in_a_description() {
    let tools: &[Tool<'static>] = &[
        (
            "convert",
            "Invoice invoice invoice invoice invoice invoice.",
            &[],
        ),
        (
            "fetch_invoice",
            "Fetches a document by its number, with all of its lines.",
            &["id"],
        ),
        ("print", "Prints.", &["invoice"]),
    ];
    let index = index("billing", tools);
    assert_eq!(
        found(&[(&index, tools)], "invoices"),
        ["fetch_invoice", "print", "convert"]
    );
}

#[test]
fn stop_words_count_only_alone() {
    let tools: &[Tool<'static>] = &[
        ("add_to_cart", "", &[]),
        ("read", "", &[]),
        ("to_do", "", &[]),
    ];
    let index = index("shop", tools);
    assert_eq!(found(&[(&index, tools)], "how to read"), ["read"]);
    assert_eq!(found(&[(&index, tools)], "to do"), ["to_do", "add_to_cart"]);
}

#[test]
fn other_scripts_are_found_by_words_pairs_and_single_characters() {
    let tools: &[Tool<'static>] = &[
        ("чтение_файла", "Читает содержимое файла", &["путь"]),
        ("a", "读取文件内容", &[]),
        ("b", "发送电子邮件", &[]),
        ("größe", "Prüft die Größe", &[]),
    ];
    let index = index("world", tools);
    let find = |query| found(&[(&index, tools)], query);
    assert_eq!(find("Содержимое"), ["чтение_файла"]);
    assert_eq!(find("ПУТЬ"), ["чтение_файла"]);
    assert_eq!(find("文件"), ["a"]);
    assert_eq!(find("电子邮件")[0], "b");
    assert_eq!(find("送"), ["b"]);
    assert_eq!(find("容"), ["a"], "the last character too");
    assert_eq!(find("GRÖSSE"), [""; 0]);
    assert_eq!(find("Größe"), ["größe"]);
}

#[test]
fn equal_scores_keep_the_order_of_the_servers_and_their_tools() {
    let tools: &[Tool<'static>] = &[("x1", "same", &[]), ("x2", "same", &[])];
    let (a, b) = (index("a", tools), index("b", tools));
    let hits = search(&[&a, &b], &Query::new("same"), 3);
    let order: Vec<_> = hits.iter().map(|hit| (hit.index, hit.document)).collect();
    assert_eq!(order, [(0, 0), (0, 1), (1, 0)]);
}

#[test]
fn long_queries_and_texts_are_cut() {
    let query = Query::new(&("word ".repeat(1_000) + "late"));
    assert!(
        query
            .terms
            .iter()
            .all(|term| "word".starts_with(&term.text))
    );
    let many: String = (0..1_000).map(|number| format!("w{number} ")).collect();
    assert_eq!(Query::new(&many).terms.len(), MAX_QUERY_TERMS);
    let huge = Document {
        name: &"n".repeat(100_000),
        title: &many,
        description: &many.repeat(100),
        parameters: std::iter::repeat_n(many.as_str(), 10_000),
    };
    let index = Index::new("server", [huge]);
    assert!(index.heap_size() < 4 * 1024, "{}", index.heap_size());
}

/// The figure of `docs/figures.md`, with texts of usual length.
#[test]
fn an_index_takes_less_than_two_kib_per_tool() {
    let names: Vec<String> = (0..100)
        .map(|number| format!("update_thing_{number}"))
        .collect();
    let description = "Updates one thing in the workspace of the user. Returns the new state of the \
        thing, its revision and the time of the change. Fails if the thing is locked by another \
        user, or if the revision does not match. Use the listing first to learn the identifier.";
    let documents = names.iter().map(|name| Document {
        name,
        title: "Update a thing",
        description,
        parameters: ["workspace", "identifier", "revision", "fields", "dry_run"],
    });
    let index = Index::new("workspace", documents);
    let per_tool = index.heap_size() / index.len();
    assert!((100..2 * 1024).contains(&per_tool), "{per_tool} bytes");
}
