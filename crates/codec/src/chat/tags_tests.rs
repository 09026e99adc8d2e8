//! Tests that the splitter finds tags for any chunking and loses no text.

use crate::chat::tags::{TagPiece, TagScope, TagSplitter};

#[test]
fn tags_are_found_for_any_chunking() {
    let text = " <reasoning>a </reason> b</reasoning> c <think>d</thinkk></think> <thin";
    let whole = {
        let mut splitter = TagSplitter::new(TagScope::Anywhere);
        let mut pieces = splitter.push(text);
        pieces.extend(splitter.finish());
        pieces
    };
    let shown: Vec<_> = whole.iter().map(|piece| format!("{piece:?}")).collect();
    let expected = [
        r#"Open(" <reasoning>")"#,
        r#"Thought("a </reason> b")"#,
        r#"Close("</reasoning>")"#,
        r#"Text(" c ")"#,
        r#"Open("<think>")"#,
        r#"Thought("d</thinkk>")"#,
        r#"Close("</think>")"#,
        r#"Text(" ")"#,
        r#"Text("<thin")"#,
    ];
    assert_eq!(shown, expected);
    let text_of = |piece: TagPiece| match piece {
        TagPiece::Text(text)
        | TagPiece::Open(text)
        | TagPiece::Thought(text)
        | TagPiece::Close(text) => text,
    };
    for size in 1..8 {
        let mut splitter = TagSplitter::new(TagScope::Anywhere);
        let chars: Vec<char> = text.chars().collect();
        let mut pieces = Vec::new();
        for chunk in chars.chunks(size) {
            pieces.extend(splitter.push(&chunk.iter().collect::<String>()));
        }
        pieces.extend(splitter.finish());
        let joined: String = pieces.into_iter().map(text_of).collect();
        assert_eq!(joined, text, "in pieces of {size}");
    }
}
