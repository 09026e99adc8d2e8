&[
    ("assets/console-COlE1eUi.js", include_bytes!("assets/console-COlE1eUi.js").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-F6XI3Yn4.css", include_bytes!("assets/console-F6XI3Yn4.css").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
