&[
    ("assets/console-BzJjVR4F.css", include_bytes!("assets/console-BzJjVR4F.css").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-DCKjGdDx.js", include_bytes!("assets/console-DCKjGdDx.js").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
