&[
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-Dgen5JMd.css", include_bytes!("assets/console-Dgen5JMd.css").as_slice()),
    ("assets/console-vqqa1tNk.js", include_bytes!("assets/console-vqqa1tNk.js").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
