&[
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-DwG_urPB.css", include_bytes!("assets/console-DwG_urPB.css").as_slice()),
    ("assets/console-zEgAQJ4y.js", include_bytes!("assets/console-zEgAQJ4y.js").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
