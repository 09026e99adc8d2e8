&[
    ("assets/console-B3pDUfWL.css", include_bytes!("assets/console-B3pDUfWL.css").as_slice()),
    ("assets/console-CEMgVTa5.js", include_bytes!("assets/console-CEMgVTa5.js").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
