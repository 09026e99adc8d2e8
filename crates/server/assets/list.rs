&[
    ("assets/console-BD4e1lKX.js", include_bytes!("assets/console-BD4e1lKX.js").as_slice()),
    ("assets/console-BoXQtfk3.css", include_bytes!("assets/console-BoXQtfk3.css").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
