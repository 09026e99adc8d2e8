//! Tests each framing with fixtures, then all framings with shared properties.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

const FRAMINGS: [Framing; 4] =
    [Framing::Sse, Framing::JsonLines, Framing::JsonArray, Framing::EventStream];

/// The frames read from a stream, and the final result.
type ReadResult = (Vec<Frame>, Result<(), FrameError>);

fn read_chunks<'a>(mut framer: Framer, chunks: impl IntoIterator<Item = &'a [u8]>) -> ReadResult {
    let mut delivered = Vec::new();
    for chunk in chunks {
        if let Err(error) = framer.push(chunk, &mut delivered) {
            assert_eq!(framer.push(b"more", &mut delivered), Err(error.clone()));
            assert_eq!(framer.finish(&mut delivered), Err(error.clone()));
            return (delivered, Err(error));
        }
    }
    let result = framer.finish(&mut delivered);
    (delivered, result)
}

/// Reads the stream at once and byte by byte, and checks that the two results are equal.
fn read(framing: Framing, bytes: &[u8]) -> ReadResult {
    let at_once = read_chunks(Framer::new(framing), [bytes]);
    assert_eq!(read_chunks(Framer::new(framing), bytes.chunks(1)), at_once);
    at_once
}

fn frame(data: impl AsRef<[u8]>) -> Frame {
    Frame { event: None, data: Bytes::copy_from_slice(data.as_ref()), exception: false }
}

fn named(event: &str, data: impl AsRef<[u8]>) -> Frame {
    Frame { event: Some(event.into()), ..frame(data) }
}

fn exception(event: &str, data: impl AsRef<[u8]>) -> Frame {
    Frame { exception: true, ..named(event, data) }
}

fn written(framing: Framing, frames: &[Frame]) -> Vec<u8> {
    let mut writer = FrameWriter::new(framing);
    let mut out = Vec::new();
    for frame in frames {
        writer.write(frame, &mut out);
    }
    writer.finish(&mut out);
    out
}

fn malformed(what: &'static str, at: u64) -> Result<(), FrameError> {
    Err(FrameError::Malformed { what, at })
}

#[test]
fn content_types_map_to_framings_ignoring_case_and_parameters() {
    let framings = [
        "text/event-stream; charset=utf-8",
        "Application/X-NDJSON",
        "application/jsonl",
        "application/json;charset=UTF-8",
        "application/vnd.amazon.eventstream",
        "text/html",
        "",
    ]
    .map(Framing::from_content_type);
    assert_eq!(
        framings,
        [
            Some(Framing::Sse),
            Some(Framing::JsonLines),
            Some(Framing::JsonLines),
            Some(Framing::JsonArray),
            Some(Framing::EventStream),
            None,
            None,
        ]
    );
}

#[test]
fn sse_reads_anthropic_and_openai_streams() {
    let stream = b"event: message_start\ndata: {\"type\":\"message_start\"}\n\n\
        : keep-alive\n\n\
        event: ping\ndata: {}\n\n\
        data: {\"choices\":[]}\n\ndata: [DONE]\n\n";
    assert_eq!(
        read(Framing::Sse, stream),
        (
            vec![
                named("message_start", r#"{"type":"message_start"}"#),
                named("ping", "{}"),
                frame(r#"{"choices":[]}"#),
                frame("[DONE]"),
            ],
            Ok(())
        )
    );
}

#[test]
fn sse_lines_end_with_cr_lf_or_both_even_mixed() {
    assert_eq!(
        read(Framing::Sse, b"data: 1\r\rdata: 2\r\n\r\ndata: 3\n\r\ndata: 4\r\n\rdata: 5\r\n\n"),
        ((1..=5).map(|number| frame(number.to_string())).collect(), Ok(()))
    );
}

#[test]
fn sse_joins_a_crlf_that_is_split_across_chunks() {
    let chunks: [&[u8]; 5] = [b"data: 1\r", b"", b"\ndata: 2\r", b"\r", b"\n"];
    assert_eq!(
        read_chunks(Framer::new(Framing::Sse), chunks),
        (vec![frame("1\n2")], Ok(())),
        "one event with two lines"
    );
}

#[test]
fn sse_delivers_an_event_at_the_cr_without_waiting_for_an_lf() {
    let mut framer = Framer::new(Framing::Sse);
    let mut delivered = Vec::new();
    framer.push(b"data: 1\r\r", &mut delivered).unwrap();
    assert_eq!(delivered, [frame("1")]);
}

#[test]
fn sse_fields_follow_the_standard() {
    let stream =
        b"\xEF\xBB\xBFdata:no space\ndata:  two spaces\ndata\ndata: a:b\nid: 7\nretry: 9\n\
        Data: other case\nunknown: x\nevent:first\nevent: last\n\n\
        event: without data\n\n\
        event\ndata\n\n\
        \xEF\xBB\xBFdata: a mark that is not at the start makes an unknown field\n\n";
    assert_eq!(
        read(Framing::Sse, stream),
        (vec![named("last", "no space\n two spaces\n\na:b"), frame("")], Ok(()))
    );
}

#[test]
fn sse_keeps_bytes_that_are_not_text() {
    assert_eq!(
        read(Framing::Sse, b"event: \xFF\ndata: \xFF\0\xC3\n\n"),
        (vec![named("\u{FFFD}", b"\xFF\0\xC3")], Ok(()))
    );
}

#[test]
fn sse_delivers_a_last_event_that_lacks_only_its_end() {
    for end in ["", "\n", "\r", "\r\n", "\n: comment", "\nid: 4", "\ndata:"] {
        let joined = if end == "\ndata:" { "{}\n" } else { "{}" };
        assert_eq!(
            read(Framing::Sse, format!("event: done\ndata: {{}}{end}").as_bytes()),
            (vec![named("done", joined)], Ok(())),
            "{end:?}"
        );
    }
}

#[test]
fn sse_is_truncated_if_data_was_incomplete() {
    for cut in ["data: {}\nevent: do", "data: {}\nx", "event: a\ndat", "d", "data"] {
        assert_eq!(read(Framing::Sse, cut.as_bytes()), (vec![], Err(FrameError::Cut)), "{cut:?}");
    }
}

#[test]
fn sse_discards_an_unfinished_event_that_never_had_data() {
    for ending in ["", "event: a", "event: a\n", ": comm", "eve", "retry: 3", "\n\n"] {
        assert_eq!(
            read(Framing::Sse, format!("data: 1\n\n{ending}").as_bytes()),
            (vec![frame("1")], Ok(())),
            "{ending:?}"
        );
    }
}

#[test]
fn sse_frames_share_equal_names() {
    let (frames, _) = read(Framing::Sse, b"event: a\ndata: 1\n\nevent: a\ndata: 2\n\n");
    let names: Vec<_> = frames.iter().filter_map(|frame| frame.event.as_ref()).collect();
    assert!(Arc::ptr_eq(names[0], names[1]));
}

#[test]
fn sse_writes_names_and_data_that_cannot_forge_fields() {
    assert_eq!(
        String::from_utf8(written(
            Framing::Sse,
            &[named("a\r\ndata: x", "1\n\r\n2\r"), frame(" {}")]
        ))
        .unwrap(),
        "event: a  data: x\ndata: 1\ndata: \ndata: 2\ndata: \n\ndata:  {}\n\n"
    );
}

#[test]
fn json_lines_skip_blank_lines_and_accept_a_last_one_without_end() {
    assert_eq!(
        read(Framing::JsonLines, b"{\"a\":1}\r\n\r\n \t\n{\"b\":\"\xFF\0\"}\n\n[3] \n{\"c\":"),
        (
            vec![
                frame(r#"{"a":1}"#),
                frame(b"{\"b\":\"\xFF\0\"}"),
                frame("[3] "),
                frame("{\"c\":")
            ],
            Ok(())
        )
    );
}

#[test]
fn json_lines_are_written_on_one_line_each() {
    assert_eq!(
        String::from_utf8(written(Framing::JsonLines, &[frame("{\r\n  \"a\": 1\n}"), frame("2")]))
            .unwrap(),
        "{    \"a\": 1 }\n2\n"
    );
}

#[test]
fn json_array_delivers_the_exact_bytes_of_each_element() {
    let stream = concat!(
        " [{\n  \"text\": \"a ] } , \\\" \\\\\",\n  \"list\": [1, {}]\n}\n,\r\n",
        "{\"b\":\"\\\\\"},[ [] ],\"s]\\\"\",-1.5e+3,null,true]\n"
    );
    assert_eq!(
        read(Framing::JsonArray, stream.as_bytes()),
        (
            vec![
                frame("{\n  \"text\": \"a ] } , \\\" \\\\\",\n  \"list\": [1, {}]\n}"),
                frame(r#"{"b":"\\"}"#),
                frame("[ [] ]"),
                frame(r#""s]\"""#),
                frame("-1.5e+3"),
                frame("null"),
                frame("true"),
            ],
            Ok(())
        )
    );
}

#[test]
fn json_array_delivers_each_complete_element_immediately() {
    let mut framer = Framer::new(Framing::JsonArray);
    let mut delivered = Vec::new();
    framer.push(b"[{\"a\":1}", &mut delivered).unwrap();
    assert_eq!(delivered, [frame(r#"{"a":1}"#)]);
}

#[test]
fn json_array_may_be_empty_or_a_bare_object() {
    assert_eq!(read(Framing::JsonArray, b"[ ]"), (vec![], Ok(())));
    assert_eq!(
        read(Framing::JsonArray, b"\n{\"error\":{\"code\":400}}\n"),
        (vec![frame(r#"{"error":{"code":400}}"#)], Ok(()))
    );
}

#[test]
fn json_array_without_its_end_is_truncated() {
    for (stream, whole) in
        [("", 0), (" ", 0), ("[", 0), ("[{}", 1), ("[{},", 1), ("[{},{", 1), ("[1", 0), ("{", 0)]
    {
        assert_eq!(
            read(Framing::JsonArray, stream.as_bytes()),
            (vec![frame("{}"); whole], Err(FrameError::Cut)),
            "{stream:?}"
        );
    }
}

#[test]
fn json_array_rejects_unexpected_bytes() {
    let end = "unexpected data after the end of the document";
    for (stream, whole, message, at) in [
        ("x", 0, "expected an array or an object", 0),
        ("[,", 0, "expected an element or the end of the array", 1),
        ("[{},]", 1, "expected an element", 4),
        ("[{} {}]", 1, "expected a comma or the end of the array", 4),
        ("[{}\"a\"]", 1, "expected a comma or the end of the array", 3),
        ("[{}] x", 1, end, 5),
        ("{}{}", 1, end, 2),
        ("{},", 1, end, 2),
    ] {
        assert_eq!(
            read(Framing::JsonArray, stream.as_bytes()),
            (vec![frame("{}"); whole], malformed(message, at)),
            "{stream:?}"
        );
    }
}

#[test]
fn json_array_accepts_deep_nesting() {
    let deep = format!("{}{}", "[{\"a\":".repeat(10_000), "}]".repeat(10_000));
    assert_eq!(
        read(Framing::JsonArray, format!("[{deep},1]").as_bytes()),
        (vec![frame(&deep), frame("1")], Ok(()))
    );
}

/// Builds a message with valid checksums from arbitrary lengths and headers.
fn message(total: u32, headers_length: u32, headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = [total.to_be_bytes(), headers_length.to_be_bytes()].concat();
    out.extend(crc32fast::hash(&out).to_be_bytes());
    out.extend(headers);
    out.extend(payload);
    out.extend(crc32fast::hash(&out).to_be_bytes());
    out
}

fn message_with(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let headers_length = u32::try_from(headers.len()).unwrap();
    let total = headers_length + u32::try_from(payload.len()).unwrap() + 16;
    message(total, headers_length, headers, payload)
}

fn header(name: &str, kind: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::try_from(name.len()).unwrap()];
    out.extend(name.as_bytes());
    out.push(kind);
    out.extend(value);
    out
}

fn string(name: &str, value: &str) -> Vec<u8> {
    let mut counted = u16::try_from(value.len()).unwrap().to_be_bytes().to_vec();
    counted.extend(value.as_bytes());
    header(name, 7, &counted)
}

#[test]
fn event_stream_reads_the_messages_that_aws_publishes_for_tests() {
    let empty = b"\0\0\0\x10\0\0\0\0\x05\xc2\x48\xeb\x7d\x98\xc8\xff";
    let no_headers = b"\0\0\0\x1d\0\0\0\0\xfd\x52\x8c\x5a{'foo':'bar'}\xc3\x65\x39\x36";
    let one_header = b"\0\0\0\x3d\0\0\0\x20\x07\xfd\x83\x96\
        \x0ccontent-type\x07\0\x10application/json{'foo':'bar'}\x8d\x9c\x08\xb1";
    let stream = [&empty[..], no_headers, one_header].concat();
    assert_eq!(
        read(Framing::EventStream, &stream),
        (vec![frame(""), frame("{'foo':'bar'}"), frame("{'foo':'bar'}")], Ok(()))
    );
}

#[test]
fn event_stream_finds_its_headers_among_all_ten_types() {
    let others = [
        header("true", 0, b""),
        header("false", 1, b""),
        header("byte", 2, &[7]),
        header("short", 3, &[7; 2]),
        header("int", 4, &[7; 4]),
        header("long", 5, &[7; 8]),
        header("bytes", 6, b"\0\x03abc"),
        header("timestamp", 8, &[7; 8]),
        header("uuid", 9, &[7; 16]),
        string(":message-type", "event"),
        string(":event-type", "messageStart"),
        header(":event-type", 6, b"\0\x05bytes"),
    ];
    assert_eq!(
        read(Framing::EventStream, &message_with(&others.concat(), b"{}")),
        (vec![named("messageStart", "{}")], Ok(()))
    );
}

#[test]
fn event_stream_marks_exceptions_and_errors() {
    let exceptions = [
        message_with(
            &[string(":exception-type", "throttling"), string(":message-type", "exception")]
                .concat(),
            b"{\"message\":\"slow down\"}",
        ),
        message_with(&string(":exception-type", "untold"), b"{}"),
        message_with(
            &[
                string(":message-type", "error"),
                string(":error-code", "InternalError"),
                string(":error-message", "a \"b\"\\\n\u{1f}é"),
            ]
            .concat(),
            b"",
        ),
    ];
    assert_eq!(
        read(Framing::EventStream, &exceptions.concat()),
        (
            vec![
                exception("throttling", r#"{"message":"slow down"}"#),
                exception("untold", "{}"),
                exception("InternalError", r#"{"message":"a \"b\"\\\u000a\u001fé"}"#),
            ],
            Ok(())
        )
    );
}

#[test]
fn event_stream_rejects_bad_checksums() {
    let good = message_with(b"", b"{}");
    let found = crc32fast::hash(&good[..14]);
    let mut bad_message = good.clone();
    bad_message[17] ^= 1;
    let expected = found ^ 1;
    assert_eq!(
        read(Framing::EventStream, &[good.clone(), bad_message].concat()),
        (vec![frame("{}")], Err(FrameError::Crc { part: "message", expected, found }))
    );

    let found = crc32fast::hash(&good[..8]);
    let mut bad_prelude = good;
    bad_prelude[8] ^= 0x80;
    let expected = found ^ 0x8000_0000;
    assert_eq!(
        read(Framing::EventStream, &bad_prelude[..12]),
        (vec![], Err(FrameError::Crc { part: "prelude", expected, found }))
    );
}

#[test]
fn event_stream_rejects_implausible_lengths_at_the_prelude() {
    let prelude = |total, headers| message(total, headers, b"", b"")[..12].to_vec();
    for (prelude, result) in [
        (prelude(15, 0), malformed("the message is shorter than the minimum of 16 bytes", 18)),
        (prelude(20, 5), malformed("the headers are longer than the message", 18)),
        (prelude(0x3f_ffff, 0x2_0001), malformed("the headers exceed 128 KiB", 18)),
        (prelude(u32::MAX, 0), Err(FrameError::TooLarge { limit: 64 * 1024 * 1024 })),
    ] {
        let stream = [message_with(b"", b"{}"), prelude].concat();
        assert_eq!(read(Framing::EventStream, &stream), (vec![frame("{}")], result));
    }
}

#[test]
fn event_stream_rejects_unreadable_headers() {
    let cut = "a header exceeds the header section";
    for (headers, message) in [
        (&b"\x05abc"[..], cut),
        (b"\x03abc", cut),
        (b"\x01a\x07\0", cut),
        (b"\x01a\x07\0\x02x", cut),
        (b"\x01a\x09uuid", cut),
        (b"\x01a\x0a", "a header has an unknown type"),
    ] {
        assert_eq!(
            read(Framing::EventStream, &message_with(headers, b"{}")),
            (vec![], malformed(message, 0)),
            "{headers:?}"
        );
    }
}

#[test]
fn event_stream_that_ends_inside_a_message_is_truncated() {
    let stream = message_with(b"", b"{}");
    for length in 1..stream.len() {
        assert_eq!(
            read(Framing::EventStream, &stream[..length]),
            (vec![], Err(FrameError::Cut)),
            "{length}"
        );
    }
}

#[test]
fn event_stream_writes_the_format_of_bedrock() {
    let headers = [
        string(":event-type", "messageStop"),
        string(":content-type", "application/json"),
        string(":message-type", "event"),
    ];
    assert_eq!(
        written(Framing::EventStream, &[named("messageStop", "{}")]),
        message_with(&headers.concat(), b"{}")
    );
}

#[test]
fn json_array_is_written_as_gemini_writes_it() {
    assert_eq!(written(Framing::JsonArray, &[]), b"[]");
    assert_eq!(written(Framing::JsonArray, &[frame("{}"), frame("1")]), b"[{}\n,\r\n1\n]");
}

#[test]
fn a_framer_is_ready_for_another_stream_once_finished() {
    for framing in FRAMINGS {
        let stream = written(framing, &[frame("{}")]);
        let mut framer = Framer::with_limit(framing, 100);
        let mut delivered = Vec::new();
        framer.push(&stream[..stream.len() / 2], &mut delivered).unwrap();
        assert!(
            framer.push(&[b'"'; 200], &mut delivered).is_err() || framing == Framing::JsonArray
        );
        framer.finish(&mut delivered).unwrap_err();
        framer.push(&stream, &mut delivered).unwrap();
        framer.finish(&mut delivered).unwrap();
        assert_eq!(delivered.last(), Some(&frame("{}")), "{framing:?}");
    }
}

#[test]
fn a_frame_of_the_limit_passes_and_one_byte_more_does_not() {
    let inputs: [(Framing, &[u8], &[u8]); 4] = [
        (Framing::Sse, b"event: ab\ndata:3456\n\n", b"event: ab\ndata:34567\n\n"),
        (Framing::JsonLines, b"12345678901\n", b"123456789012\n"),
        (Framing::JsonArray, b"[12345678901]", b"[ 123456789012 ]"),
        (Framing::Sse, b"data:345678\n", b"data:3456789\n"),
    ];
    for (framing, passes, fails) in inputs {
        for chunk in [1, 3, 100] {
            let read =
                |bytes: &[u8]| read_chunks(Framer::with_limit(framing, 11), bytes.chunks(chunk)).1;
            assert_eq!(read(passes), Ok(()), "{framing:?}");
            assert_eq!(read(fails), Err(FrameError::TooLarge { limit: 11 }), "{framing:?}");
        }
    }
    let stream = message_with(b"", b"{}");
    let read = |limit| read_chunks(Framer::with_limit(Framing::EventStream, limit), [&stream[..]]);
    assert_eq!(read(18), (vec![frame("{}")], Ok(())));
    assert_eq!(read(17), (vec![], Err(FrameError::TooLarge { limit: 17 })));
}

/// If the framer rescanned its buffer at every chunk, this test would scan about a terabyte and
/// time out.
#[test]
fn a_frame_of_fifty_megabytes_in_small_chunks_is_read_in_linear_time() {
    let data = format!("\"{}\"", "x".repeat(50_000_000));
    for framing in FRAMINGS {
        let stream = written(framing, &[frame(&data)]);
        let (frames, result) = read_chunks(Framer::new(framing), stream.chunks(1024));
        assert!(frames == [frame(&data)] && result == Ok(()), "{framing:?}");
    }
}

#[test]
fn debug_output_shows_no_content() {
    let mut framer = Framer::new(Framing::JsonLines);
    framer.push(b"secret", &mut Vec::new()).unwrap();
    assert_eq!(
        format!("{framer:?}"),
        "Framer { framing: JsonLines, limit: 67108864, failed: None, .. }"
    );
}

/// Splits the bytes into chunks of the given sizes, repeated cyclically.
fn chunks<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    for &size in sizes.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (head, tail) = bytes.split_at(size.min(bytes.len()));
        chunks.push(head);
        bytes = tail;
    }
    chunks
}

/// Generates chunk sizes that include empty chunks but always make progress.
fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(0..12_usize, 1..8).prop_map(|mut sizes| {
        sizes.push(3);
        sizes
    })
}

/// Concatenates random stream fragments. The result is usually an almost valid stream, and
/// sometimes a valid stream.
fn soup(pieces: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    vec(select(pieces), 0..60).prop_map(|pieces| pieces.concat())
}

fn sse_soup() -> impl Strategy<Value = Vec<u8>> {
    soup(&[
        b"data:",
        b"data: ",
        b"data",
        b"event: ",
        b"event:",
        b"id: 1",
        b"retry",
        b":",
        b" ",
        b"{}",
        b"a",
        b"\r",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"\r\r",
        b"\xEF\xBB\xBF",
        b"\xEF\xBB",
        b"\xFF",
        b"\0",
        b"\xC3\xA9",
        b"[DONE]",
    ])
}

fn line_soup() -> impl Strategy<Value = Vec<u8>> {
    soup(&[b"{", b"}", b"\"\\n\"", b"\r", b"\n", b"\r\n", b" ", b"\t", b"\xFF", b"\0", b"\xC3\xA9"])
}

fn array_soup() -> impl Strategy<Value = Vec<u8>> {
    (
        any::<bool>(),
        soup(&[
            b"[",
            b"]",
            b"{",
            b"}",
            b",",
            b"\"",
            b"\\",
            b"\\\"",
            b"1",
            b"-2.5",
            b"null",
            b" ",
            b"\n",
            b":",
            b"\"a\"",
            b"{},",
            b"\xFF",
            b"\0",
            b"\xC3\xA9",
        ]),
    )
        .prop_map(|(open, soup)| if open { [b"[", &soup[..]].concat() } else { soup })
}

/// Generates valid messages and may corrupt one byte.
fn event_stream_soup() -> impl Strategy<Value = Vec<u8>> {
    (any_frames(), any::<prop::sample::Index>(), prop_oneof![Just(0), any::<u8>()]).prop_map(
        |(frames, at, change)| {
            let mut bytes = written(Framing::EventStream, &frames);
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= change;
            }
            bytes
        },
    )
}

fn any_frames() -> impl Strategy<Value = Vec<Frame>> {
    let event = proptest::option::of("[a-zA-Zé:_. -]{1,80}");
    let frame =
        (event, vec(any::<u8>(), 0..200), any::<bool>()).prop_map(|(event, data, exception)| {
            Frame { event: event.map(Arc::from), data: Bytes::from(data), exception }
        });
    vec(frame, 0..6)
}

/// Generates JSON texts with escapes, brackets in strings and space between tokens.
fn json() -> impl Strategy<Value = String> {
    let text = "\"([a-zé{}\\[\\], :]|\\\\\"|\\\\\\\\|\\\\n|\\\\u00e9){0,12}\"";
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?[1-9][0-9]{0,5}(\\.[0-9]{1,3})?([eE][+-]?[0-9])?",
        text,
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(|elements| format!("[ {}\n]", elements.join(" ,\t"))),
            vec((text, inner), 0..5).prop_map(|members| {
                let members: Vec<_> =
                    members.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                format!("{{{}}}", members.join(",\r\n"))
            }),
        ]
    })
}

fn check_any_split_agrees(framing: Framing, limit: usize, bytes: &[u8], sizes: &[usize]) {
    let framer = || Framer::with_limit(framing, limit);
    let at_once = read_chunks(framer(), [bytes]);
    assert_eq!(read_chunks(framer(), chunks(bytes, sizes)), at_once);
    assert_eq!(read_chunks(framer(), bytes.chunks(1)), at_once);
}

fn check_identity(framing: Framing, frames: &[Frame], sizes: &[usize]) {
    let bytes = written(framing, frames);
    let read = read_chunks(Framer::new(framing), chunks(&bytes, sizes));
    assert_eq!(read, (frames.to_vec(), Ok(())));
}

/// Generates frame size limits that are often too small.
fn limit() -> impl Strategy<Value = usize> {
    prop_oneof![0..40_usize, Just(1 << 20)]
}

proptest! {
    #[test]
    fn sse_result_is_independent_of_chunking(
        bytes in sse_soup(), limit in limit(), sizes in sizes()
    ) {
        check_any_split_agrees(Framing::Sse, limit, &bytes, &sizes);
    }

    #[test]
    fn json_lines_result_is_independent_of_chunking(
        bytes in line_soup(), limit in limit(), sizes in sizes()
    ) {
        check_any_split_agrees(Framing::JsonLines, limit, &bytes, &sizes);
    }

    #[test]
    fn json_array_result_is_independent_of_chunking(
        bytes in array_soup(), limit in limit(), sizes in sizes()
    ) {
        check_any_split_agrees(Framing::JsonArray, limit, &bytes, &sizes);
    }

    #[test]
    fn event_stream_result_is_independent_of_chunking(
        bytes in event_stream_soup(),
        limit in prop_oneof![0..400_usize, Just(1 << 20)],
        sizes in sizes(),
    ) {
        check_any_split_agrees(Framing::EventStream, limit, &bytes, &sizes);
    }

    #[test]
    fn sse_round_trips(frames in any_frames(), sizes in sizes()) {
        // SSE cannot carry a CR in the data, nor the exception flag.
        let frames: Vec<_> = frames.into_iter().map(|frame| Frame {
            data: frame.data.iter().copied().filter(|&byte| byte != b'\r').collect(),
            exception: false,
            ..frame
        }).collect();
        check_identity(Framing::Sse, &frames, &sizes);
    }

    #[test]
    fn json_lines_round_trip(
        lines in vec(vec(any::<u8>(), 1..80), 0..6), sizes in sizes()
    ) {
        let frames: Vec<_> = lines.into_iter().map(|mut line| {
            line.retain(|byte| !matches!(byte, b'\r' | b'\n'));
            line.push(b'.');
            frame(line)
        }).collect();
        check_identity(Framing::JsonLines, &frames, &sizes);
    }

    #[test]
    fn json_array_round_trips(values in vec(json(), 0..6), sizes in sizes()) {
        let frames: Vec<_> = values.iter().map(frame).collect();
        check_identity(Framing::JsonArray, &frames, &sizes);
    }

    #[test]
    fn event_stream_round_trips(frames in any_frames(), sizes in sizes()) {
        check_identity(Framing::EventStream, &frames, &sizes);
    }

    #[test]
    fn any_bytes_are_read_without_panic_and_within_the_limit(
        bytes in prop_oneof![
            vec(any::<u8>(), 0..2000),
            vec(prop_oneof![sse_soup(), line_soup(), array_soup()], 0..20)
                .prop_map(|soups| soups.concat()),
            event_stream_soup(),
        ],
        limit in 0..300_usize,
        sizes in sizes(),
    ) {
        for framing in FRAMINGS {
            let mut framer = Framer::with_limit(framing, limit);
            let mut delivered = Vec::new();
            for chunk in chunks(&bytes, &sizes) {
                let ended = framer.push(chunk, &mut delivered).is_err();
                // Vectors grow by doubling, and SSE has two. 64 bytes allow for a prelude and for
                // minimum capacities.
                prop_assert!(framer.buffered_capacity() <= 4 * limit + 64, "{} held", framer.buffered_capacity());
                if ended {
                    break;
                }
            }
            drop(framer.finish(&mut delivered));
            prop_assert!(delivered.iter().all(|frame| frame.data.len() <= limit));
        }
    }
}
