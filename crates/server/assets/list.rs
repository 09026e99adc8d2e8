&[
    ("assets/console-BGJQvDjc.js", include_bytes!("assets/console-BGJQvDjc.js").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-DqGTQu4w.css", include_bytes!("assets/console-DqGTQu4w.css").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
