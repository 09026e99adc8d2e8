&[
    ("assets/console-BgpjGART.js", include_bytes!("assets/console-BgpjGART.js").as_slice()),
    ("assets/console-C6xYLX4Y.css", include_bytes!("assets/console-C6xYLX4Y.css").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
